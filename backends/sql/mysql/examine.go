package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/examine"
)

var _ driver.Examiner = (*Backend)(nil)

// examination reads the settings, and the user's privileges on the whole server and on the whole
// database.
const examination = `SELECT UTC_TIMESTAMP(6), CURRENT_USER(), @@global.innodb_flush_log_at_trx_commit, @@global.log_bin,
  @@global.sync_binlog, @@global.innodb_doublewrite,
  COALESCE((SELECT GROUP_CONCAT(DISTINCT privilege_type ORDER BY privilege_type SEPARATOR ', ')
    FROM information_schema.user_privileges WHERE privilege_type <> 'USAGE'), ''),
  COALESCE((SELECT GROUP_CONCAT(DISTINCT privilege_type ORDER BY privilege_type SEPARATOR ', ')
    FROM information_schema.schema_privileges
    WHERE privilege_type NOT IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')), '')`

const timeLayout = "2006-01-02 15:04:05.999999"

// Examine implements driver.Examiner.
func (b *Backend) Examine(ctx context.Context) ([]driver.Finding, error) {
	ctx, done, err := b.my.life.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var text string
	var x examined
	before := time.Now()
	err = b.my.reads.with(ctx, func(l *connection) (bool, error) {
		err := l.conn.QueryRowContext(ctx, examination).Scan(&text, &x.user, &x.flush, &x.binlog, &x.sync,
			&x.doublewrite, &x.global, &x.schema)
		return err == nil, err
	})
	if err != nil {
		return nil, dialect.Cause(ctx, fmt.Errorf("tenure: reading settings and rights: %w", err))
	}
	after := time.Now()
	server, err := time.Parse(timeLayout, text)
	if err != nil {
		return nil, fmt.Errorf("tenure: reading the server's clock: %w", err)
	}
	return append(x.findings(), examine.Clock(before, server, after)), nil
}

type examined struct {
	user, doublewrite string
	flush, sync       int
	binlog            bool
	global, schema    string // rights beyond those on tables
}

func (x *examined) findings() []driver.Finding {
	out := []driver.Finding{
		{Name: "innodb_flush_log_at_trx_commit", Value: fmt.Sprint(x.flush)},
		{Name: "innodb_doublewrite", Value: x.doublewrite},
		{Name: "sync_binlog", Value: "no binary log"},
		{Name: "user", Value: x.user},
	}
	if x.flush != 1 {
		out[0].Remedy = "a crash of the machine can lose acknowledged grants and writes of the last second: set it to 1"
	}
	if off := strings.ToUpper(x.doublewrite); off == "0" || off == "OFF" {
		out[1].Remedy = "a crash of the machine can damage pages: set it to ON, unless the file system writes pages whole"
	}
	if x.binlog {
		out[2].Value = fmt.Sprint(x.sync)
		if x.sync != 1 {
			out[2].Remedy = "a crash of the machine can lose acknowledged grants and writes: set it to 1"
		}
	}
	switch {
	case x.global != "":
		out[3].Value += ", with rights on the whole server: " + short(x.global)
		out[3].Remedy = "use the run-time user of docs/backends/mysql.md, which has rights on the tables only"
	case x.schema != "":
		out[3].Value += ", with rights on the whole database: " + short(x.schema)
		out[3].Remedy = "it may change or drop the tables: use the run-time user of docs/backends/mysql.md"
	}
	return out
}

func short(rights string) string {
	const most = 8
	list := strings.Split(rights, ", ")
	if len(list) <= most {
		return rights
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
