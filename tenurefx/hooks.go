package tenurefx

import (
	"reflect"

	"github.com/tenure-go/tenure/core"
)

// merge makes hooks that call all of those given, in their order.
func merge(all []core.Hooks) core.Hooks {
	var merged core.Hooks
	to := reflect.ValueOf(&merged).Elem()
	for i := range to.NumField() {
		var fns []reflect.Value
		for _, h := range all {
			if f := reflect.ValueOf(h).Field(i); !f.IsNil() {
				fns = append(fns, f)
			}
		}
		switch len(fns) {
		case 0:
		case 1:
			to.Field(i).Set(fns[0])
		default:
			to.Field(i).Set(reflect.MakeFunc(to.Field(i).Type(), func(args []reflect.Value) []reflect.Value {
				for _, f := range fns {
					f.Call(args)
				}
				return nil
			}))
		}
	}
	return merged
}
