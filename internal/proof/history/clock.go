package history

// Instant is nanoseconds of the host's monotonic clock, which all processes of one
// host share, counted from its boot, without times of suspension. 0 is no instant.
type Instant int64
