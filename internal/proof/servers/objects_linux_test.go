package servers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestObjectStores: of each object store, a killed server keeps its objects and refuses to create
// them again, and a stopped server does not answer.
func TestObjectStores(t *testing.T) {
	t.Parallel()
	requests := map[Kind]func(*testing.T, *Server, string, string) (int, string){S3: s3Object, GCS: gcsObject}
	for kind, object := range requests {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := New(t, kind, nil)
			if status, text := object(t, s, "", ""); status != http.StatusOK {
				t.Fatalf("creating a bucket: status %d, %s", status, text)
			}
			create := func(want int) {
				t.Helper()
				if status, text := object(t, s, "a/b", "value"); status != want {
					t.Errorf("creating an object: status %d, want %d: %s", status, want, text)
				}
			}
			kept := func() bool {
				status, text := object(t, s, "a/b", "")
				return status == http.StatusOK && text == "value"
			}
			create(http.StatusOK)
			create(http.StatusPreconditionFailed)
			if err := s.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 { // of a dead server, and of a running one
				if err := s.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !kept() {
				t.Error("an object from before the restart is gone")
			}
			create(http.StatusPreconditionFailed)
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			answered := make(chan bool, 1)
			go func() { answered <- kept() }()
			select {
			case <-answered:
				t.Error("a stopped server answers")
				answered <- true
			case <-time.After(time.Second):
			}
			if err := s.Cont(); err != nil {
				t.Fatal(err)
			}
			if !<-answered {
				t.Error("a server that was stopped does not answer")
			}
			if log, secret := s.Logs(), s.User().Password(); secret != "" && strings.Contains(log, secret) {
				t.Error("the log contains the password")
			}
		})
	}
	t.Run("versions", func(t *testing.T) {
		t.Parallel()
		s := New(t, S3, nil)
		for _, step := range []struct{ name, text string }{{"", ""}, {"?versioning=",
			`<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`}} {
			if status, text := s3Object(t, s, step.name, step.text); status != http.StatusOK {
				t.Fatalf("%q: status %d, %s", step.name, status, text)
			}
		}
	})
	t.Run("configuration", func(t *testing.T) {
		t.Parallel()
		s := New(t, S3, &Options{Config: []string{"VGW_READ_ONLY = true"}})
		if status, text := s3Object(t, s, "", ""); status != http.StatusForbidden {
			t.Errorf("creating a bucket on a server that is read-only: status %d, %s", status, text)
		}
	})
}

// s3Object creates an object if its name is free. Without a text, it reads the object; without a
// name, it creates the bucket. It returns status 0 without an answer.
func s3Object(t *testing.T, s *Server, name, text string) (int, string) {
	t.Helper()
	path, query, _ := strings.Cut(name, "?")
	method, header := http.MethodPut, http.Header{}
	switch {
	case text == "" && name != "":
		method = http.MethodGet
	case path != "":
		header.Set("If-None-Match", "*")
	}
	u := &url.URL{Scheme: "http", Host: s.Addr(), Path: strings.TrimSuffix("/tests/"+path, "/"), RawQuery: query}
	at := time.Now().UTC().Format("20060102T150405Z")
	scope := at[:8] + "/us-east-1/s3/aws4_request"
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	header.Set("X-Amz-Date", at)
	header.Set("X-Amz-Content-Sha256", hash(text))
	const signed = "host;x-amz-content-sha256;x-amz-date"
	canonical := strings.Join([]string{method, u.Path, query, "host:" + u.Host, "x-amz-content-sha256:" + hash(text),
		"x-amz-date:" + at, "", signed, hash(text)}, "\n")
	key := []byte("AWS4" + s.User().Password())
	for _, part := range append(strings.Split(scope, "/"), "AWS4-HMAC-SHA256\n"+at+"\n"+scope+"\n"+hash(canonical)) {
		mac := hmac.New(sha256.New, key)
		_, _ = io.WriteString(mac, part) // never fails
		key = mac.Sum(nil)
	}
	header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x",
		s.User().User(), scope, signed, key))
	return answer(t, method, u, header, text)
}

// gcsObject is like s3Object.
func gcsObject(t *testing.T, s *Server, name, text string) (int, string) {
	t.Helper()
	u := &url.URL{Scheme: "http", Host: s.Addr(), Path: "/storage/v1/b"}
	switch {
	case name == "":
		return answer(t, http.MethodPost, u, nil, `{"name": "tests"}`)
	case text == "":
		u.Path = "/tests/" + name
		return answer(t, http.MethodGet, u, nil, "")
	}
	u.Path = "/upload" + u.Path + "/tests/o"
	u.RawQuery = url.Values{"uploadType": {"media"}, "name": {name}, "ifGenerationMatch": {"0"}}.Encode()
	return answer(t, http.MethodPost, u, nil, text)
}

func answer(t *testing.T, method string, u *url.URL, header http.Header, text string) (int, string) {
	req, err := http.NewRequestWithContext(bounded(t, ample.Time), method, u.String(), strings.NewReader(text))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	for name := range header {
		req.Header.Set(name, header.Get(name))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(body)
}
