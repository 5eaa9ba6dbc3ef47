package route

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/problem"
	"github.com/tenure-go/tenure/sharding"
)

// Forwarded is the header of a request that a member has forwarded.
const Forwarded = "Tenure-Forwarded"

// These are the types of the problem documents (RFC 9457) in a Handler's answers. The document
// of ProblemOwner also names the owner's node and token, and its address if it publishes one.
const (
	ProblemOwner       = "urn:tenure:route:owner"       // 421
	ProblemUnowned     = "urn:tenure:route:unowned"     // 503
	ProblemUnreachable = "urn:tenure:route:unreachable" // 503: the owner could not be connected to
	ProblemLost        = "urn:tenure:route:lost"        // 502
	ProblemInvalid     = "urn:tenure:route:invalid"     // 400
)

// retryAfter is the Retry-After of a 503, in seconds. Most hand-overs take less.
const retryAfter = 1

func answer(w http.ResponseWriter, d problem.Document) {
	if d.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	d.Write(w)
}

// Refuse answers a request as a Handler does if the shard has no owner. Nothing was done, and
// clients try again. The application's handler calls it if the lease ends as the request arrives,
// or if a Slice refuses the request's key.
func Refuse(w http.ResponseWriter, shard string) {
	answer(w, problem.Document{Type: ProblemUnowned, Status: http.StatusServiceUnavailable, Title: sharding.ErrNoOwner.Error(), Shard: shard,
		Detail: "nothing was done; try again"})
}

// readProblem returns the document of a response with which a Handler has refused a request, or
// nil. Other responses, even those with the same statuses, are the application's, and are left
// unread. It omits Shard, Node and Address if they are not valid. It quotes Title and Detail.
func readProblem(r *http.Response) *problem.Document {
	switch r.StatusCode {
	case http.StatusMisdirectedRequest, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusBadRequest:
	default:
		return nil
	}
	p, err := problem.Read(r, ProblemOwner, ProblemUnowned, ProblemUnreachable, ProblemLost, ProblemInvalid)
	if p == nil || err != nil {
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
	return p
}

// maxAddress is the longest address, in bytes.
const maxAddress = 300

// CheckAddress parses a member's address. An address consists of the scheme http or https, a
// host, and optionally a port. The error matches core.ErrInvalid.
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

// pause returns the wait before the next attempt after a 503.
func pause(r *http.Response, most time.Duration) time.Duration {
	n, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || n < 0 || n > 3600 {
		return most
	}
	return min(time.Duration(n)*time.Second, most)
}
