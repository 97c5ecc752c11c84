package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// EventsRequest says which events to list.
type EventsRequest struct {
	ID     string // only those of this invocation; empty: of all
	Follow bool   // wait for more, until the context ends

	Each func(line []byte) error // required: gets each event as one line of JSON
}

// Events lists the events of invocations in the order of their times, and then those that are added. With Follow it ends
// with the cause of ctx.
func Events(ctx context.Context, r *core.Repository, req EventsRequest) error {
	logs := map[string]*eventLog{}
	if req.ID != "" {
		inv, err := r.Invocation(req.ID)
		if err != nil {
			return err
		}
		req.ID = inv.ID
	}
	for {
		ids := []string{req.ID}
		if req.ID == "" {
			var err error
			if ids, err = r.Store.InvocationIDs(r.ID); err != nil {
				return err
			}
		}
		var current []*eventLog
		for _, id := range ids {
			if logs[id] == nil {
				logs[id] = &eventLog{id: id, path: r.Store.EventsPath(r.ID, id)}
			}
			current = append(current, logs[id])
		}
		found, err := readNewOf(current)
		if err != nil {
			return err
		}
		for _, e := range found {
			if err := req.Each(e.line); err != nil {
				return err
			}
		}
		if !req.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(followInterval):
		}
	}
}

// readNewOf returns the events that were added to several logs, in the order of their times. Those of one log keep their
// order, also if the clock was set back in between.
func readNewOf(logs []*eventLog) ([]event, error) {
	var found []event
	for _, l := range logs {
		err := l.readNew(func(e event) {
			if e.time.Before(l.last) {
				e.time = l.last
			}
			l.last = e.time
			found = append(found, e)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(found, func(a, b event) int { return a.time.Compare(b.time) })
	return found, nil
}

// event is one event, as JSON in one line.
type event struct {
	time time.Time // zero if it cannot be parsed
	name string
	line []byte
}

// eventLog is the event log of an invocation, as far as it was read.
type eventLog struct {
	id, path string
	offset   int64
	file     os.FileInfo // the file that offset belongs to; nil before the first
	last     time.Time   // latest time of an event so far
	older    os.FileInfo // the older part of the log when that was read; nil if there was none
}

// readNew passes the events that were added since the last call.
func (l *eventLog) readNew(each func(event)) error {
	current, err := os.Lstat(l.path)
	if err != nil {
		return nil // it has no events yet, or was pruned
	}
	rotated := store.RotatedPath(l.path)
	older, _ := os.Lstat(rotated) // nil if there is none
	isRotated := l.file == nil || !isUnchanged(l.older, older)
	if !isRotated && current.Size() == l.offset {
		return nil
	}
	add := func(line []byte) {
		if e, ok := parseEvent(l.id, line); ok {
			each(e)
		}
	}
	if isRotated { // the first call counts as well
		if l.file == nil || older == nil || !os.SameFile(l.file, older) {
			l.offset = 0 // rotated twice: the part that was read is gone
		}
		if _, err := store.ReadEventLog(rotated, l.offset, add); err != nil {
			return err
		}
		l.file, l.older, l.offset = current, older, 0
	}
	l.offset, err = store.ReadEventLog(l.path, l.offset, add)
	return err
}

// isUnchanged reports whether a file is the same as before. Not the inode alone counts, which the file system may use again.
func isUnchanged(before, now os.FileInfo) bool {
	if before == nil || now == nil {
		return before == nil && now == nil
	}
	return os.SameFile(before, now) && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime())
}

// eventTimeForm is the form of the times of events, all of one width: time.Time leaves out zeros at the end of the fraction.
const eventTimeForm = "2006-01-02T15:04:05.000Z07:00"

// parseEvent adds the id of the invocation to an event: its time, that id and its name come first. A line that is no event,
// such as one that is being written, is left out.
func parseEvent(id string, line []byte) (event, bool) {
	var head struct {
		Time  string `json:"time"`
		Event string `json:"event"`
	}
	var fields map[string]json.RawMessage
	if !bytes.HasSuffix(line, []byte{'\n'}) || json.Unmarshal(line, &head) != nil || json.Unmarshal(line, &fields) != nil || head.Event == "" {
		return event{}, false
	}
	var out bytes.Buffer
	write := func(name string, value json.RawMessage) {
		key, _ := json.Marshal(name) // a string always can be
		out.Write(append(append(append([]byte{}, key...), ':'), value...))
	}
	at, err := time.Parse(time.RFC3339, head.Time) // it accepts a fraction of a second, too
	if err == nil {
		fields["time"], _ = json.Marshal(at.Format(eventTimeForm))
	}
	quoted, _ := json.Marshal(id)
	out.WriteByte('{')
	write("time", fields["time"])
	out.WriteByte(',')
	write("invocation_id", quoted)
	out.WriteByte(',')
	write("event", fields["event"])
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "time" && name != "invocation_id" && name != "event" {
			out.WriteByte(',')
			write(name, fields[name])
		}
	}
	out.WriteByte('}')
	return event{at, head.Event, out.Bytes()}, fields["time"] != nil
}
