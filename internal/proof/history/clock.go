package history

// Instant is a reading of the host's monotonic clock, in nanoseconds since boot. The clock does not
// count time while the host is suspended. All processes of a host share this clock. The value 0
// means that there is no reading.
type Instant int64
