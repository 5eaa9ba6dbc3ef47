package config

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Schema returns a JSON Schema (draft 2020-12) for the subtree, with a section for each opener.
// Editors and deployment pipelines can use the schema to check a file. JSON has no tags such as
// !file and !env, so a checker must be configured to allow them.
func Schema(openers ...core.Opener) ([]byte, error) {
	root := object(reflect.TypeFor[settings]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "tenure"
	properties := root["properties"].(map[string]any)
	parts := map[string]any{}
	for _, o := range openers {
		if o.Settings == nil {
			parts[o.Name] = map[string]any{"type": "object"}
			continue
		}
		parts[o.Name] = object(reflect.TypeOf(o.Settings))
	}
	properties["backend"].(map[string]any)["enum"] = names(openers)
	backends := properties["backends"].(map[string]any)
	backends["properties"], backends["additionalProperties"] = parts, false
	return json.MarshalIndent(root, "", "  ")
}

func object(t reflect.Type) map[string]any {
	properties := map[string]any{}
	for name, f := range fields(t) {
		p := schemaOf(f.Type)
		if doc := f.Tag.Get("doc"); doc != "" {
			p["description"] = doc
		}
		properties[name] = p
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "pattern": `^-?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$`}
	case t == reflect.TypeFor[raw]():
		return map[string]any{"type": "object"}
	case isSecret(t):
		return map[string]any{"type": "string", "writeOnly": true}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Struct:
		return object(t)
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	}
	return map[string]any{"type": "string"}
}
