// Package core lets processes elect leaders and share shards, with fencing tokens.
package core
