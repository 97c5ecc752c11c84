package settings

import (
	"errors"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// ReadLimitsKey is the key of the limits of reading data that an agent wrote.
const ReadLimitsKey = "agency.readLimits"

const defaultReadLimits = "time=1m memory=2g output=256m inflated=16g"

const wantReadLimits = "limits such as " + defaultReadLimits + ", or some of them"

// ReadLimits returns the limits of reading data that an agent wrote. A limit that agency.readLimits does not name has
// its default.
func (r *Reader) ReadLimits() (readlimit.Limits, error) {
	setting, set := r.Config.Last(CanonicalKey(ReadLimitsKey))
	if !set {
		return readlimit.Default(), nil
	}
	limits, err := parseReadLimits(setting.Value)
	if errors.As(err, new(*fault.InvalidError)) {
		return limits, InvalidSetting(ReadLimitsKey, setting, wantReadLimits)
	}
	return limits, err
}

// parseReadLimits parses limits that are separated by spaces or commas.
func parseReadLimits(text string) (readlimit.Limits, error) {
	limits := readlimit.Default()
	invalid := &fault.InvalidError{What: "limits", Value: text, Want: wantReadLimits}
	for _, each := range strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == ',' }) {
		name, value, _ := strings.Cut(each, "=")
		sizes := map[string]*int64{readlimit.Memory: &limits.Memory, readlimit.Output: &limits.Output, readlimit.Inflated: &limits.Inflated}
		switch size := sizes[name]; {
		case name == readlimit.Time:
			d, err := time.ParseDuration(value)
			if err != nil || d < time.Second { // the kernel counts processor time in seconds
				return limits, invalid
			}
			limits.Time = d
		case size != nil:
			n, err := confine.ParseSize(value)
			if err != nil {
				return limits, invalid
			}
			*size = n
		default:
			return limits, invalid
		}
	}
	return limits, nil
}

func checkReadLimits(value string) error {
	_, err := parseReadLimits(value)
	return err
}
