package engine

import (
	"encoding/json"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// inBatches processes n items in consecutive ranges. If a range after the first fails, earlier
// ranges are already applied. Therefore, the error becomes the result of each item in the failed
// range, and later items are not sent (A4).
func inBatches(n int, next func(from int) int, do func(from, to int) error, fail func(i int, err error)) error {
	for from := 0; from < n; {
		to := next(from)
		if err := do(from, to); err != nil {
			if from == 0 {
				return err
			}
			for i := from; i < n; i++ {
				if i == to && driver.Unknown(err) {
					err = fmt.Errorf("tenure: %w: an earlier part of the batch failed: %v", driver.ErrRetry, err)
				}
				fail(i, err)
			}
			return nil
		}
		from = to
	}
	return nil
}

// inParts is like inBatches, but each call also fills a part of the results. The part is copied
// only if the call succeeds, because a store may still be writing to it after the call's context
// has ended.
func inParts[R any](n int, next func(from int) int, do func(from, to int, part []R) error, failed func(error) R) ([]R, error) {
	results := make([]R, n)
	err := inBatches(n, next, func(from, to int) error {
		part := make([]R, to-from)
		if err := do(from, to, part); err != nil {
			return err
		}
		copy(results[from:], part)
		return nil
	}, func(i int, err error) { results[i] = failed(err) })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// upTo divides n items into ranges of at most limit items.
func upTo(n, limit int) func(from int) int {
	return func(from int) int { return min(n, from+limit) }
}

// list returns a JSON array of strings. Statements receive a batch in this form.
func list[T any, S ~string](items []T, name func(T) S) string {
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = string(name(it))
	}
	return array(names)
}

// array returns a JSON array of strings and numbers. Encoding such values never fails.
func array(values any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func same[S ~string](s S) S { return s }
