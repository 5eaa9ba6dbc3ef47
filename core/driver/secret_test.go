package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// TestFilesAreBounded: a credential and a file of certificates are read up to their size limits. An
// error names the setting, but never the file, because the file's name may be a pasted credential.
func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	file := func(name string, bytes int) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(strings.Repeat("x", bytes-1)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	largest, larger := file("planted", 64<<10), file("planted", 64<<10+1)
	if text, err := driver.ReadSecret(largest); err != nil || len(text) != 64<<10-1 {
		t.Errorf("the largest credential: %d bytes, %v", len(text), err)
	}
	if _, err := driver.ReadSecret(larger); err == nil || !strings.Contains(err.Error(), "more than 65536 bytes") {
		t.Errorf("a larger credential: %v", err)
	}
	bundle, tooLarge, absent := file("planted", 1<<20), file("planted", 1<<20+1), filepath.Join(t.TempDir(), "planted")
	for _, c := range []struct {
		files driver.TLSFiles
		want  string
	}{
		{driver.TLSFiles{CA: bundle}, "ca_file: it holds no certificate in PEM"},
		{driver.TLSFiles{CA: tooLarge}, "ca_file: the file has more than 1048576 bytes"},
		{driver.TLSFiles{CA: absent}, "ca_file: no such file"},
		{driver.TLSFiles{Cert: absent, Key: bundle}, "cert_file: no such file"},
		{driver.TLSFiles{Cert: bundle, Key: absent}, "key_file: no such file"},
		{driver.TLSFiles{Cert: bundle}, "key_file: "},
		{driver.TLSFiles{Cert: bundle, Key: bundle}, "cert_file and key_file: "},
	} {
		if _, err := c.files.Config(); err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%+v: %v, want %q", c.files, err, c.want)
		}
	}
	if c, err := (driver.TLSFiles{ServerName: "db"}).Config(); err != nil || c.ServerName != "db" || c.RootCAs != nil || len(c.Certificates) > 0 {
		t.Errorf("without files: %+v, %v", c, err)
	}
}
