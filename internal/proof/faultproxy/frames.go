package faultproxy

import "encoding/binary"

// PostgresFrames is the Framer of what clients send to PostgreSQL: a message has a type of
// one byte, which the first one of a connection lacks, and a length of four bytes that counts
// itself.
func PostgresFrames(b []byte) int {
	if len(b) < 5 {
		return 0
	}
	if b[0] == 0 {
		return int(binary.BigEndian.Uint32(b))
	}
	return 1 + int(binary.BigEndian.Uint32(b[1:]))
}

// MySQLFrames is the Framer of what clients send to MariaDB and MySQL: a packet has a length
// of three bytes and a number of one byte before it.
func MySQLFrames(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return 4 + int(b[0]) + int(b[1])<<8 + int(b[2])<<16
}
