package assign_test

import (
	"github.com/tenure-go/tenure/internal/proof/shape"
	"github.com/tenure-go/tenure/sharding/assign"
)

func init() { assign.CheckShape = shape.Check }
