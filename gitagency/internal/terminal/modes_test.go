package terminal

import (
	"bytes"
	"testing"
)

func TestModeTrackerResetsWhatIsOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ output, reset string }{
		"plain text":                    {"text\r\n\x1b[31mred\x1b[m \x1b]0;title\a\x1b[2J\x1b[H", ""},
		"alternate screen":              {"\x1b[?1049hscreen", "\x1b[?1049l"},
		"left by the program":           {"\x1b[?1049h\x1b[?25l\x1b[?2004hscreen\x1b[?2004l\x1b[?25h\x1b[?1049l", ""},
		"hidden cursor":                 {"\x1b[?25l", "\x1b[?25h"},
		"several in one sequence":       {"\x1b[?1000;1002;1006h", "\x1b[?1006l\x1b[?1002l\x1b[?1000l"},
		"the screen comes last":         {"\x1b[?1049h\x1b[?25l\x1b[?1003h\x1b[?1004h\x1b[?2004h", "\x1b[?2004l\x1b[?1004l\x1b[?1003l\x1b[?25h\x1b[?1049l"},
		"set twice":                     {"\x1b[?2004h\x1b[?2004h", "\x1b[?2004l"},
		"one of two left":               {"\x1b[?1000h\x1b[?1006h\x1b[?1000l", "\x1b[?1006l"},
		"keypad and cursor keys":        {"\x1b[?1h\x1b=", "\x1b>\x1b[?1l"},
		"keypad left":                   {"\x1b=\x1b>", ""},
		"no line wrap":                  {"\x1b[?7l", "\x1b[?7h"},
		"modified keys":                 {"\x1b[>4;2m", "\x1b[>4m"},
		"modified keys left":            {"\x1b[>4;2m\x1b[>4;0m\x1b[>4;1m\x1b[>4m", ""},
		"keyboard flags":                {"\x1b[>1u\x1b[>3u", "\x1b[<2u"},
		"keyboard flags left":           {"\x1b[>1u\x1b[<u\x1b[>1u\x1b[>1u\x1b[<5u", ""},
		"keyboard flags of each screen": {"\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[>1u", "\x1b[<2u\x1b[?1049l\x1b[<1u"},
		"full reset":                    {"\x1b[?1049h\x1b[?25l\x1b[>1u\x1bc", ""},
		"soft reset":                    {"\x1b[?1h\x1b=\x1b[?25l\x1b[!p", ""},
		"unknown modes":                 {"\x1b[?12h\x1b[?99999h\x1b[4h\x1b[?h\x1b[?1000:1h", ""},
		"not private":                   {"\x1b[1049h\x1b[25l", ""},
		"control characters inside":     {"\x1b[?10\n49\bh", "\x1b[?1049l"},
		"cancelled":                     {"\x1b[?1049\x18h\x1b[?25\x1al", ""},
		"begun again":                   {"\x1b[?10\x1b[?25l", "\x1b[?25h"},
		"escape at the end":             {"\x1b[?25l\x1b", "\x1b[?25h"},
		"too long":                      {"\x1b[?" + string(bytes.Repeat([]byte("0"), 10_000)) + "25l", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(c.output); size = max(size+1, size*2) { // split in every way that matters
				var tracker modeTracker
				for rest := []byte(c.output); len(rest) > 0; rest = rest[min(size, len(rest)):] {
					tracker.follow(rest[:min(size, len(rest))])
				}
				if got := string(tracker.reset()); got != c.reset {
					t.Errorf("in pieces of %d bytes: got %q, want %q", size, got, c.reset)
				}
				if again := tracker.reset(); len(again) != 0 {
					t.Errorf("the second reset is %q", again)
				}
			}
		})
	}
}

// FuzzModeTrackerReset checks that the bytes of reset switch off all modes that any output has switched on.
func FuzzModeTrackerReset(f *testing.F) {
	f.Add([]byte("\x1b[?1049h\x1b[?25l\x1b[>1u\x1b[>4;2m\x1b="), 3)
	f.Add([]byte("\x1b[?1000;1002;1006;7l\x1b[?10\x1b[!p"), 1)
	f.Fuzz(func(t *testing.T, output []byte, split int) {
		at := min(max(split, 0), len(output))
		var whole, pieces modeTracker
		whole.follow(output)
		pieces.follow(output[:at])
		pieces.follow(output[at:])
		reset := whole.reset()
		pieces.follow(append([]byte{0x18}, reset...)) // a sequence that is not complete is cancelled
		if left := pieces.reset(); len(left) != 0 {
			t.Errorf("after %q and %q, %q is left", output, reset, left)
		}
	})
}
