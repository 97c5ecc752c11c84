package git

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// indexParser reads the content of an index file, which is all but its checksum.
type indexParser struct {
	content []byte
	at      int
	version uint32
	format  ObjectFormat
	size    int // of an object's name

	trusting bool // names are those that the user's own git let in
	rebuild  bool // write the entries anew, into body
	body     []byte
	extended bool
	nameless bool // an entry has no name
	odd      bool // an entry has room for more flags, and none of them

	name  []byte   // of the entry before
	stage uint16   // of the entry before
	files []prefix // names that the next one may lie below
	spare []byte   // for names of version 4, which are parts of others
}

// prefix is the beginning of a name that is also the whole name of a file.
type prefix int

func (p *indexParser) entries(count int) error {
	for n := range count {
		if err := p.entry(); err != nil {
			return fmt.Errorf("index: entry %d: %w", n, err)
		}
	}
	return nil
}

var errCutOff = errors.New("cut off")

func (p *indexParser) entry() error {
	start := p.at
	if len(p.content)-start < indexStat+p.size+2 {
		return errCutOff
	}
	stat := p.content[start : start+indexStat]
	oid := p.content[start+indexStat : start+indexStat+p.size]
	flags := binary.BigEndian.Uint16(p.content[start+indexStat+p.size:])
	p.at = start + indexStat + p.size + 2
	var extra uint16
	if flags&flagExtend != 0 {
		if p.version == 2 || len(p.content)-p.at < 2 {
			return errors.New("flags that it cannot have")
		}
		extra = binary.BigEndian.Uint16(p.content[p.at:])
		p.at += 2
		if extra&^(extraSkip|extraIntend) != 0 {
			return errors.New("unknown flags")
		}
		p.extended = p.extended || extra != 0
		p.odd = p.odd || extra == 0
	}
	name, err := p.readName(start, int(flags&flagLength))
	if err != nil {
		return err
	}
	mode := binary.BigEndian.Uint32(stat[indexMode:])
	switch mode {
	case modeFile, modeProgram, modeLink, modeGitlink:
	case modeTree:
		return &NotPlainError{"sparse"}
	default:
		return fmt.Errorf("mode %o", mode)
	}
	if extra&extraIntend == 0 && zero(oid) {
		return errors.New("no object")
	}
	if err := p.follows(name, flags&flagStage, mode == modeLink); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if p.rebuild {
		if len(p.body)+len(name)+indexStat+p.size+12 > mostIndex {
			return errors.New("too much")
		}
		p.body = appendEntry(p.body, stat, oid, flags, extra, name)
	}
	return nil
}

// readName reads the name of the entry that began at start, and all that is left of the entry.
func (p *indexParser) readName(start, length int) ([]byte, error) {
	rest := p.content[p.at:]
	if p.version == 4 {
		drop, n := prefixDrop(rest)
		if n == 0 || drop > uint64(len(p.name)) {
			return nil, errors.New("a name that continues none")
		}
		rest = rest[n:]
		end := bytes.IndexByte(rest[:min(len(rest), longestPath+1)], 0)
		if end < 0 {
			return nil, errCutOff
		}
		keep := len(p.name) - int(drop)
		if keep+end > longestPath || min(keep+end, flagLength) != length {
			return nil, errors.New("a name of another length")
		}
		p.at += n + end + 1
		p.spare = append(append(p.spare[:0], p.name[:keep]...), rest[:end]...)
		return p.spare, nil
	}
	if length == flagLength {
		if length = bytes.IndexByte(rest[:min(len(rest), longestPath+1)], 0); length < flagLength {
			return nil, errors.New("a name of another length")
		}
	}
	next := start + padded(p.at-start+length)
	if next > len(p.content) {
		return nil, errCutOff
	}
	if !zero(p.content[p.at+length : next]) {
		return nil, errors.New("something behind the name")
	}
	p.at = next
	return rest[:length:length], nil
}

// prefixDrop reads how much of the name before does not begin this one; n is the length of that number, and
// zero when there is none.
func prefixDrop(data []byte) (drop uint64, n int) {
	for n < len(data) && n < 4 {
		b := data[n]
		n++
		drop = drop<<7 | uint64(b&0x7f)
		if b&0x80 == 0 {
			return drop, n
		}
		drop++
	}
	return 0, 0
}

// follows checks a name against the one before, and takes its place.
func (p *indexParser) follows(name []byte, stage uint16, link bool) error {
	same := commonPrefix(p.name, name)
	switch {
	case len(name) == 0:
		p.nameless = true // as some are where the names are in another file
		p.keep(name, stage)
		return nil
	case same == len(name) && same == len(p.name):
		if p.stage == 0 || stage <= p.stage {
			return errors.New("twice there")
		}
	case same == len(name) || same < len(p.name) && name[same] < p.name[same]:
		return errors.New("out of order")
	}
	if bytes.IndexByte(name[same:], 0) >= 0 {
		return errors.New("a NUL in the name")
	}
	// What is the same was looked at before, but for a component that is longer now.
	if why := refusedName(name, bytes.LastIndexByte(name[:same], '/')+1, link); why != "" && !p.trusting {
		return errors.New(why)
	}
	// A file and something below it: git would write one through the other where that is a link. While
	// a conflict is not resolved, both can be staged. Names that begin alike are neighbours, so the files
	// that this one may lie below all begin it, and those that are shorter than what is the same were
	// asked about before.
	for len(p.files) > 0 && int(p.files[len(p.files)-1]) > same {
		p.files = p.files[:len(p.files)-1]
	}
	if stage == 0 {
		if top := len(p.files) - 1; top >= 0 && int(p.files[top]) == same && len(name) > same && name[same] == '/' {
			return errors.New("below a file")
		}
		p.files = append(p.files, prefix(len(name)))
	}
	p.keep(name, stage)
	return nil
}

// keep remembers the name of an entry for the next.
func (p *indexParser) keep(name []byte, stage uint16) {
	p.stage = stage
	if p.version == 4 {
		p.spare = p.name // each has memory of its own
	}
	p.name = name
}

func (p *indexParser) extensions() error {
	for p.at < len(p.content) {
		if len(p.content)-p.at < 8 {
			return errors.New("index: something behind the entries")
		}
		name, length := p.content[p.at:p.at+4], binary.BigEndian.Uint32(p.content[p.at+4:])
		if p.at += 8; uint64(length) > uint64(len(p.content)-p.at) {
			return fmt.Errorf("index: extension %q: %w", name, errCutOff)
		}
		p.at += int(length)
		switch {
		case string(name) == "link":
			return &NotPlainError{"split"}
		case string(name) == "sdir":
			return &NotPlainError{"sparse"}
		case name[0] < 'A' || name[0] > 'Z':
			return fmt.Errorf("index: extension %q is not known", name)
		}
	}
	if p.nameless {
		return errors.New("index: an entry without a name")
	}
	return nil
}
