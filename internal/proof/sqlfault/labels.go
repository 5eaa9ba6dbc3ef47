package sqlfault

import (
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// Labels joins under so many new labels that the backend tries to remove some of them. The backend
// has no permission to remove labels, but the joins must still succeed.
func Labels(t *testing.T, b driver.Backend) {
	t.Helper()
	const joins = 2 * driver.MaxIdleLabels
	for i := range joins {
		s := Join(t, b, fmt.Sprint("label-", i))
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	labels, err := b.(driver.LabelLister).Labels(t.Context())
	if err != nil || len(labels) < joins {
		t.Errorf("%d labels, %v; want at least %d", len(labels), err, joins)
	}
}
