package history

// Instant is nanoseconds of the host's monotonic clock, which all processes of
// one host share, in the time since it was booted without what it was suspended.
// 0 is no instant.
type Instant int64
