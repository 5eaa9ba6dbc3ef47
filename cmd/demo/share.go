package main

import "hash/fnv"

// ownerOf is the member that should own an airport: the one with the highest
// score (rendezvous hashing), so that each process finds the same answer by
// itself, and a change of membership moves only what it must. Members are node
// labels, at least one.
func ownerOf(airport string, members []string) string {
	var best string
	var top uint64
	for _, m := range members {
		if s := score(airport, m); best == "" || s > top || (s == top && m < best) {
			best, top = m, s
		}
	}
	return best
}

func score(airport, member string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(member))
	h.Write([]byte{0})
	h.Write([]byte(airport))
	// FNV mixes its last bytes poorly into the high bits: finish as splitmix64 does.
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
