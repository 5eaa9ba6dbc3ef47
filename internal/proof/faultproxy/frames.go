package faultproxy

import "encoding/binary"

// PostgresFrames is the Framer of PostgreSQL's clients. A message has a type of one byte, which the
// first message of a connection lacks, and a length of four bytes that includes itself.
func PostgresFrames(b []byte) int {
	if len(b) < 5 {
		return 0
	}
	if b[0] == 0 {
		return int(binary.BigEndian.Uint32(b))
	}
	return 1 + int(binary.BigEndian.Uint32(b[1:]))
}

// MySQLFrames is the Framer of MariaDB's and MySQL's clients. A packet begins with a length of
// three bytes and a number of one byte.
func MySQLFrames(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return 4 + int(b[0]) + int(b[1])<<8 + int(b[2])<<16
}
