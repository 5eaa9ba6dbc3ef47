package servers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestDSNRevealsOnRequestOnly(t *testing.T) {
	t.Parallel()
	const secret = "p@ss:w/rd"
	for _, c := range []struct {
		dsn  DSN
		want string
	}{
		{postgresDSN("127.0.0.1:5432", nil).As("u", secret).Database("d"), "postgres://u:p%40ss%3Aw%2Frd@127.0.0.1:5432/d?sslmode=disable"},
		{DSN{kind: MariaDB, network: "tcp", addr: "127.0.0.1:3306"}.As("u", secret).Database("d").With("timeout", "1s"),
			"u:p@ss:w/rd@tcp(127.0.0.1:3306)/d?timeout=1s"},
	} {
		if got := c.dsn.Reveal(); got != c.want {
			t.Errorf("Reveal: got %s, want %s", got, c.want)
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "dsn", c.dsn)
		js, err := json.Marshal(struct{ D DSN }{c.dsn})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{
			fmt.Sprint(c.dsn), fmt.Sprintf("%+v %#v %q %x %d", c.dsn, c.dsn, c.dsn, c.dsn, c.dsn),
			fmt.Sprintf("%+v", struct{ D DSN }{c.dsn}), log.String(), string(js),
		} {
			if strings.Contains(text, "ss:w") || strings.Contains(text, "p%40ss") || !strings.Contains(text, "xxxxx") {
				t.Errorf("got %s, want it with the password replaced", text)
			}
		}
	}
}

func TestDSNIsAValue(t *testing.T) {
	t.Parallel()
	d := postgresDSN("127.0.0.1:5432", nil).As("u", "p")
	before := d.Reveal()
	if got := d.At("127.0.0.1:9").With("a",
		"b").Database("c").Reveal(); got != "postgres://u:p@127.0.0.1:9/c?a=b&sslmode=disable" {
		t.Errorf("changed copy: got %s", got)
	}
	if got := d.Reveal(); got != before {
		t.Errorf("got %s after the copy was changed, want %s", got, before)
	}
}

func TestParseDSN(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind       Kind
		text, want string
	}{
		{Postgres, "postgres://u:p%40@db:1234/x?sslmode=require", "postgres://u:p%40@db:1234/x?sslmode=require"},
		{Postgres, "postgresql://u:p@db", "postgres://u:p@db:5432/postgres"},
		{MariaDB, "u:p@:/@tcp(db:1234)/x?tls=true", "u:p@:/@tcp(db:1234)/x?tls=true"},
		{MariaDB, "u:p@tcp(db)/", "u:p@tcp(db:3306)/"},
	} {
		d, err := parseDSN(c.kind, c.text)
		if err != nil || d.Reveal() != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.text, d.Reveal(), err, c.want)
		}
	}
	for _, c := range []struct {
		kind Kind
		text string
	}{
		{Postgres, "host=db user=u password=secret"}, {Postgres, "postgres://u:sec%ret@db/"}, {Postgres, "mysql://u:secret@db/"},
		{MariaDB, "u:secret@db"}, {MariaDB, "u:secret@unix(/x)/"}, {MariaDB, "u:secret@tcp(db/"}, {MariaDB, ""}, {MariaDB, "secret/"},
	} {
		if _, err := parseDSN(c.kind, c.text); err == nil || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: got error %v, want one without the text", c.text, err)
		}
	}
}
