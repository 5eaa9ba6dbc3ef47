package faultproxy

import "encoding/binary"

// PostgresFrames is the Framer for PostgreSQL clients. Each message except the first on a
// connection begins with a type byte. A four-byte length follows, which counts itself and the rest
// of the message.
func PostgresFrames(b []byte) int {
	if len(b) < 5 {
		return 0
	}
	if b[0] == 0 {
		return int(binary.BigEndian.Uint32(b))
	}
	return 1 + int(binary.BigEndian.Uint32(b[1:]))
}

// MySQLFrames is the Framer for MariaDB and MySQL clients. A packet begins with a three-byte length
// and a one-byte sequence number.
func MySQLFrames(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return 4 + int(b[0]) + int(b[1])<<8 + int(b[2])<<16
}
