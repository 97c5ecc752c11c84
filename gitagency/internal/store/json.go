package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// updateJSON applies change to the T stored in a file and preserves everything else in the file: fields that this
// version does not know, at any depth, and the order of the keys. It compares the T before and after the change and
// writes only the differences into the document. Of two updates at the same time one waits for the other.
func updateJSON[T any](path string, change func(*T)) error {
	return updateJSONIf(path, func(value *T) bool { change(value); return true })
}

// updateJSONIf is updateJSON for a change that may turn out not to be needed: if change returns false, nothing is written.
func updateJSONIf[T any](path string, change func(*T) bool) (err error) {
	held, err := lockRecord(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if err := removeKilledUpdates(path); err != nil {
		return err
	}
	data, err := durable.ReadFile(path, maxRecordBytes)
	if err != nil {
		return err
	}
	needed := false
	updated, err := patchJSON(data, func(value *T) { needed = change(value) })
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !needed {
		return nil
	}
	return durable.WriteFile(path, updated, 0o600)
}

func patchJSON[T any](data []byte, change func(*T)) ([]byte, error) {
	var value T
	var doc, before, after jsonObject
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if err := toJSONObject(value, &before); err != nil {
		return nil, err
	}
	change(&value)
	if err := toJSONObject(value, &after); err != nil {
		return nil, err
	}
	if err := doc.applyChanges(before, after); err != nil {
		return nil, err
	}
	return encodeJSON(doc, "  ")
}

// encodeJSON encodes a value with a newline at the end, and without escaping <, > and &.
func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// jsonObject is a JSON object that preserves the order of its keys and the spelling of its values.
type jsonObject struct {
	keys   []string
	values map[string]json.RawMessage
}

// applyChanges applies the differences between before and after to o.
func (o *jsonObject) applyChanges(before, after jsonObject) error {
	for _, k := range before.keys {
		if _, kept := after.values[k]; !kept {
			delete(o.values, k)
		}
	}
	for _, k := range after.keys {
		if bytes.Equal(before.values[k], after.values[k]) {
			continue
		}
		var nested, nestedBefore, nestedAfter jsonObject
		if json.Unmarshal(o.values[k], &nested) == nil &&
			json.Unmarshal(before.values[k], &nestedBefore) == nil &&
			json.Unmarshal(after.values[k], &nestedAfter) == nil {
			if err := nested.applyChanges(nestedBefore, nestedAfter); err != nil {
				return err
			}
			raw, err := encodeJSON(nested, "")
			if err != nil {
				return err
			}
			o.set(k, raw)
			continue
		}
		o.set(k, after.values[k])
	}
	return nil
}

func (o *jsonObject) set(key string, raw json.RawMessage) {
	if _, have := o.values[key]; !have {
		o.keys = append(o.keys, key)
	}
	o.values[key] = raw
}

// UnmarshalJSON reads one object; any other JSON value is an error.
func (o *jsonObject) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &o.values); err != nil {
		return err
	}
	if o.values == nil {
		return fmt.Errorf("null is not an object")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return err
		}
		if k, ok := key.(string); ok && !seen[k] {
			seen[k] = true
			o.keys = append(o.keys, k)
		}
	}
	return nil
}

// MarshalJSON writes the keys in the order in which they were read.
func (o jsonObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, k := range o.keys {
		raw, have := o.values[k]
		if !have {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		name, err := encodeJSON(k, "")
		if err != nil {
			return nil, err
		}
		b.Write(bytes.TrimSpace(name))
		b.WriteByte(':')
		b.Write(raw)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func toJSONObject(v any, into *jsonObject) error {
	raw, err := encodeJSON(v, "")
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
