package history

// Instant is a time of the host's monotonic clock: nanoseconds since the boot, without times of
// suspension. All processes of a host share this clock. The value 0 means no instant.
type Instant int64
