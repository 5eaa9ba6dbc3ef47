package route

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/sharding"
)

// Forwarded is the header of a request that a member has forwarded.
const Forwarded = "Tenure-Forwarded"

// Types of the problem documents (RFC 9457) that a Handler answers with.
const (
	ProblemOwner       = "urn:tenure:route:owner"       // 421
	ProblemUnowned     = "urn:tenure:route:unowned"     // 503
	ProblemUnreachable = "urn:tenure:route:unreachable" // 503: the owner could not be connected to
	ProblemLost        = "urn:tenure:route:lost"        // 502
	ProblemInvalid     = "urn:tenure:route:invalid"     // 400
)

// Problem is the body of such an answer.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Shard   string     `json:"shard,omitempty"`
	Node    string     `json:"node,omitempty"`    // of the owner
	Address string     `json:"address,omitempty"` // of the owner; empty if it tells none
	Token   core.Token `json:"token,omitempty"`
}

// maxProblem bounds the body of a problem that is read, in bytes.
const maxProblem = 64 << 10

// retryAfter is what a 503 asks for, in seconds: most hand-overs take less.
const retryAfter = 1

func answer(w http.ResponseWriter, p Problem) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that is gone needs no answer
}

// Refuse answers a request that is not served as a Handler answers one whose shard nobody serves:
// nothing was done, and clients try again. It is for the application's handler, where the lease
// ends as the request arrives, or a Slice refuses its key.
func Refuse(w http.ResponseWriter, shard string) {
	answer(w, Problem{Type: ProblemUnowned, Status: http.StatusServiceUnavailable, Title: sharding.ErrNoOwner.Error(), Shard: shard,
		Detail: "nothing was done; try again"})
}

// ReadProblem returns the Problem of a response with which a Handler has refused a
// request, or nil: other responses, also of the same statuses, are the application's, and
// are left unread. Shard, Node and Address in it are checked, and left out where they are
// not valid; Title and Detail are quoted. Of a problem it reads the body, at most 64 KiB; the caller closes it in any
// case.
func ReadProblem(r *http.Response) *Problem {
	switch r.StatusCode {
	case http.StatusMisdirectedRequest, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusBadRequest:
	default:
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/problem+json" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxProblem))
	var p Problem
	if err != nil || json.Unmarshal(body, &p) != nil {
		return nil
	}
	switch p.Type {
	case ProblemOwner, ProblemUnowned, ProblemUnreachable, ProblemLost, ProblemInvalid:
	default:
		return nil
	}
	if core.CheckShard(p.Shard) != nil {
		p.Shard = ""
	}
	if driver.CheckNode(p.Node) != nil {
		p.Node = ""
	}
	if _, err := CheckAddress(p.Address); err != nil {
		p.Address = ""
	}
	p.Status, p.Detail, p.Title = r.StatusCode, fmt.Sprintf("%.500q", p.Detail), fmt.Sprintf("%.200q", p.Title)
	return &p
}

// maxAddress is the longest address, in bytes.
const maxAddress = 300

// CheckAddress parses the address of a member: http or https, a host and perhaps a port,
// and nothing else. The error matches core.ErrInvalid.
func CheckAddress(address string) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("tenure: %w: address %.100q %s: write it as http://host:port or https://host:port", core.ErrInvalid,
			address, why)
	}
	if address == "" || len(address) > maxAddress {
		return bad(fmt.Sprintf("has %d bytes", len(address)))
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return bad("cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("has another scheme")
	case u.User != nil:
		return nil, fmt.Errorf("tenure: %w: an address has a user: leave it out", core.ErrInvalid)
	case u.Hostname() == "" || u.Opaque != "":
		return bad("has no host")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("has more than a host and a port")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return bad("has no valid port")
		}
	}
	return u, nil
}

// pause is the wait before the next attempt after a 503.
func pause(r *http.Response, most time.Duration) time.Duration {
	n, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || n < 0 || n > 3600 {
		return most
	}
	return min(time.Duration(n)*time.Second, most)
}
