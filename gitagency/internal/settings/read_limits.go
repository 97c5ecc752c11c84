package settings

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// ReadLimitsKey is the key of the limits of reading data that an agent wrote.
const ReadLimitsKey = "agency.readLimits"

const defaultReadLimits = "time=1m memory=2g output=256m inflated=16g"

// ReadLimits returns the limits of reading data that an agent wrote. A limit that agency.readLimits does not name has
// its default. With an error it returns the defaults.
func (r *Reader) ReadLimits() (readlimit.Limits, error) {
	setting, set := r.Config.Last(CanonicalKey(ReadLimitsKey))
	if !set {
		return readlimit.Default(), nil
	}
	limits, err := parseReadLimits(setting.Value)
	var invalid *fault.InvalidError
	if errors.As(err, &invalid) {
		return readlimit.Default(), InvalidSetting(ReadLimitsKey, setting, invalid.Want)
	}
	return limits, err
}

// parseReadLimits parses limits that are separated by spaces or commas.
func parseReadLimits(text string) (readlimit.Limits, error) {
	limits := readlimit.Default()
	for _, each := range strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == ',' }) {
		name, value, _ := strings.Cut(each, "=")
		sizes := map[string]*int64{readlimit.Memory: &limits.Memory, readlimit.Output: &limits.Output, readlimit.Inflated: &limits.Inflated}
		invalid := func(want string) error {
			return &fault.InvalidError{What: "limits", Value: text, Want: want + " instead of " + strconv.Quote(each)}
		}
		switch size := sizes[name]; {
		case name == readlimit.Time:
			d, err := time.ParseDuration(value)
			if err != nil || d < time.Second { // the kernel counts processor time in seconds
				return limits, invalid("a duration of at least a second, such as time=1m,")
			}
			limits.Time = d
		case size != nil:
			n, err := confine.ParseSize(value)
			if err != nil {
				return limits, invalid("a size such as " + name + "=2g")
			}
			*size = n
		default:
			return limits, invalid("a limit of time, memory, output or inflated, such as memory=2g,")
		}
	}
	return limits, nil
}

func checkReadLimits(value string) error {
	_, err := parseReadLimits(value)
	return err
}
