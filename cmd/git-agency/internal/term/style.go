package term

import (
	"net/url"
	"os"
	"slices"
	"strings"
)

// Style is how results are shown.
type Style struct {
	Color bool
	Links bool   // whether paths are hyperlinks
	Host  string // host name in hyperlinks
	Width int    // columns of the terminal; 0 if unknown or no terminal
}

// palette is the list of all colours: the column of a table or the key of a field, the prefix of its text, and the SGR
// parameter. The first entry that matches counts. Names are bright and the ids beside them dim; commits are yellow, as git's
// hashes are.
var palette = []struct{ column, begins, sgr string }{
	{HeaderColumn, "", "1"},
	{"id", "", "2"},
	{"name", "", "1"},
	{"invocation", "", "33"},
	{"base", "", "33"},
	{"commit", "", "33"},
	{"state", "broken", "31"},
	{"broken", "", "31"},
	{"state", "present", "32"},
	{"state", "running", "32"},
	{"state", "finished", "32"},
	{"state", "exited", "31"},
	{"state", "failed", "31"},
	{"state", "timed out", "31"},
	{"state", "blocked", "33"},
	{"state", "stopped", "33"},
	{"state", "review", "36"},
	{"landing", "review", "36"},
	{"state", "rejected", "35"},
	{"landing", "rejected", "35"},
	{"submitted-commit", "", "33"},
	{"landed-commit", "", "33"},
	{"unlanded-commit", "", "33"},
	{"state", "landed", "2"},
	{"state", "unlanded", "2"},
	{"state", "discarded", "2"},
	{"landing", "landed", "2"},
	{"landing", "discarded", "2"},
	{"state", "archived", "2"},
	{"radar", "clean", "32"},
	{"radar", "rivals", "33"},
	{"radar", "nothing", "2"},
	{"radar", "", "31"},
	{"conflicts with", "", "33"},
	{"result", "landed", "32"},
	{"result", "would land", "32"},
	{"result", "", "31"},
	{"finding", "", "31"},
	{"risk", "no ", "32"},
	{"risk", "", "31"},
	{"check", "ok", "32"},
	{"check", "failed", "31"},
	{"capability", "ok", "32"},
	{"capability", "", "33"},
	{Success, "", "32"},
	{MessagePrefix, "error", "31"},
	{MessagePrefix, "fatal", "31"},
	{MessagePrefix, "hint", "33"},
	{MessagePrefix, "warning", "33"},
}

// Keys of the palette that are not columns.
const (
	HeaderColumn  = "the header of a table"
	MessagePrefix = "the first word of a message"
	Success       = "the words of a message that say what succeeded"
)

// linkedColumns are the columns whose paths become hyperlinks.
var linkedColumns = []string{"path"}

// Paint adds the colour and the hyperlink of a cell with this value to the text shown for it.
func (s Style) Paint(column, value, shown string) string {
	if !s.Links && !s.Color {
		return shown
	}
	column = strings.ToLower(column)
	if s.Links && value != "" && slices.Contains(linkedColumns, column) {
		shown = hyperlink(fileURL(s.Host, value), shown)
	}
	if s.Color && value != "" {
		for _, p := range palette {
			if p.column == column && strings.HasPrefix(value, p.begins) {
				return "\x1b[" + p.sgr + "m" + shown + "\x1b[m"
			}
		}
	}
	return shown
}

// hyperlink returns text as a hyperlink to target for terminals (OSC 8).
func hyperlink(target, text string) string {
	return "\x1b]8;;" + target + "\x1b\\" + text + "\x1b]8;;\x1b\\"
}

// fileURL includes the host name, since the terminal may be on another machine than the file.
func fileURL(host, path string) string {
	return (&url.URL{Scheme: "file", Host: host, Path: path}).String()
}

// Hostname returns the name of this machine, or "", which means the local machine in a file URL, if the host name is unknown.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
