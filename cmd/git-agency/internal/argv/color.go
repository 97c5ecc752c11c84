package argv

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"
)

// ColorChoice is the choice of the last --color or --no-color on a command line.
type ColorChoice struct {
	Value string // always, auto or never; empty without a flag
	Err   error  // invalid value, if any
}

// Flags returns --color and --no-color, which are accepted anywhere on the command line; the last one counts.
func (c *ColorChoice) Flags() []cli.Flag {
	return []cli.Flag{
		AttachedValueFlag{&cli.GenericFlag{Name: "color", Value: &colorValue{c, "always"}, Usage: "colour: --color=always (or --color alone), auto or never"}},
		AttachedValueFlag{&cli.GenericFlag{Name: "no-color", Value: &colorValue{c, "never"}, Usage: "no colour; the same as --color=never"}},
	}
}

// colorValue is the flag value of --color or --no-color.
type colorValue struct {
	choice  *ColorChoice
	implied string // value of the flag if none is attached
}

// Set never returns an error, since urfave would reword it; it keeps the error in the choice.
func (v *colorValue) Set(value string) error {
	switch {
	case value == "true": // the flag package's value for a flag without one
		v.choice.Value = v.implied
	case v.implied == "never":
		v.choice.Err = errors.New("--no-color takes no value")
	case !slices.Contains([]string{"always", "auto", "never"}, value):
		v.choice.Err = fmt.Errorf("--color=%s: want always, auto or never", value)
	default:
		v.choice.Value = value
	}
	return nil
}

func (v *colorValue) String() string { return "" }

// IsBoolFlag keeps the flag package from taking the next word as the value.
func (v *colorValue) IsBoolFlag() bool { return true }
