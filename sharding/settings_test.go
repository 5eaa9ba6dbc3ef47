package sharding

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// Each setting reaches the option of its name.
func TestSettings(t *testing.T) {
	s := Settings{Shards: []string{"a"}, Keyspace: Keyspace{Name: "k", Shards: 2}, Interval: 1, LeaveBudget: 2, Cooldown: 3, Penalty: 4, Poll: 5,
		ZoneKey: "z", Capacity: 6}
	o := s.Options(time.Hour)
	from, to := reflect.ValueOf(s), reflect.ValueOf(*o)
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		if got := to.FieldByName(name); from.Field(i).IsZero() || !reflect.DeepEqual(got.Interface(), from.Field(i).Interface()) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if s.LeaveBudget = 0; s.Options(time.Hour).LeaveBudget != time.Hour {
		t.Error("the default of leave_budget does not count")
	}
	if o.Shards[0] = "b"; !slices.Equal(s.Shards, []string{"a"}) {
		t.Error("the options share the settings' list")
	}
}
