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

// This header marks a request that a member has forwarded.
const forwarded = "Tenure-Forwarded"

const (
	problemOwner       = "urn:tenure:route:owner"       // 421
	problemUnowned     = "urn:tenure:route:unowned"     // 503
	problemUnreachable = "urn:tenure:route:unreachable" // 503: the Handler could not connect to the owner
	problemLost        = "urn:tenure:route:lost"        // 502
	problemInvalid     = "urn:tenure:route:invalid"     // 400
)

// Most hand-overs take less than this number of seconds.
const retryAfter = 1

func answer(w http.ResponseWriter, d problem.Document) {
	if d.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	d.Write(w)
}

// Refuse answers a request as a Handler does when the shard has no owner. The answer states that
// nothing was done, so clients try again. The application's handler calls Refuse if the lease ends
// while the request arrives, or if a Slice refuses the request's key.
func Refuse(w http.ResponseWriter, shard string) {
	answer(w, problem.Document{Type: problemUnowned, Status: http.StatusServiceUnavailable, Title: sharding.ErrNoOwner.Error(), Shard: shard,
		Detail: "nothing was done; try again"})
}

// readProblem returns the problem document in a Handler's refusal. All other responses, even with
// the same status, come from the application. For them, readProblem returns nil and does not read
// the body. From the document, it omits an invalid Shard, Node or Address, and quotes Title and
// Detail.
func readProblem(r *http.Response) *problem.Document {
	switch r.StatusCode {
	case http.StatusMisdirectedRequest, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusBadRequest:
	default:
		return nil
	}
	p, err := problem.Read(r, problemOwner, problemUnowned, problemUnreachable, problemLost, problemInvalid)
	if p == nil || err != nil {
		return nil
	}
	if core.CheckShard(p.Shard) != nil {
		p.Shard = ""
	}
	if driver.CheckNode(p.Node) != nil {
		p.Node = ""
	}
	if _, err := checkAddress(p.Address); err != nil {
		p.Address = ""
	}
	p.Status, p.Detail, p.Title = r.StatusCode, fmt.Sprintf("%.500q", p.Detail), fmt.Sprintf("%.200q", p.Title)
	return p
}

const maxAddress = 300

// checkAddress parses a member's address: the scheme http or https, a host, and optionally a port.
// The error matches core.ErrInvalid.
func checkAddress(address string) (*url.URL, error) {
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

func pause(r *http.Response, most time.Duration) time.Duration {
	n, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || n < 0 || n > 3600 {
		return most
	}
	return min(time.Duration(n)*time.Second, most)
}
