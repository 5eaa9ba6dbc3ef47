package history

// Instant is a number of nanoseconds of the host's monotonic clock since its boot, without times of
// suspension. All processes of a host share this clock. 0 is no instant.
type Instant int64
