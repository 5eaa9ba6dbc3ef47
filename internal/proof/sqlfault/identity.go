package sqlfault

import (
	"context"
	stdsql "database/sql"
	"errors"
)

// TamperIdentity returns functions for outage.Identity. The functions overwrite or remove a
// namespace's identity in the data or in the roster.
func TamperIdentity(data, roster *stdsql.DB) map[string]func(namespace string) error {
	one := func(db *stdsql.DB, statement string) func(string) error {
		return func(namespace string) error {
			res, err := db.ExecContext(context.Background(), statement+" WHERE namespace = '"+namespace+"'")
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n != 1 {
				return errors.Join(errors.New("there is no such namespace"), err)
			}
			return nil
		}
	}
	return map[string]func(string) error{
		"replaced":        one(data, "UPDATE tenure_namespaces SET store_id = 'ANOTHER'"),
		"removed":         one(data, "DELETE FROM tenure_namespaces"),
		"roster-replaced": one(roster, "UPDATE tenure_rosters SET store_id = 'ANOTHER'"),
		"roster-removed":  one(roster, "DELETE FROM tenure_rosters"),
	}
}
