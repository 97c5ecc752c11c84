// Package toolconfig removes secrets from the settings of tools that commands behind walls see as copies.
//
// Each kind of file has a filter, which keeps only what it understands: a setting that may be a secret, or of which the
// filter cannot tell where it ends, is left out, and a file that cannot be parsed as a whole. Comments often keep old
// settings: TOML, YAML, Asdfrc, Variables, PathScript and Inputrc remove them all; the others treat them as other lines. The package
// touches no file, and must never return part of a value that it has not looked at.
package toolconfig

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git/config"
)

// Filter returns the text of a file without secrets. It returns false for a file that must not be shown.
type Filter func(text string) (clean string, ok bool)

// secretName matches names of settings that are secrets, such as those whose last word is key or pass. "author" is none.
var secretName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)token|secret|passw|passphrase|pwd|credential|(api|access|private)[-_]?key|auth([^o]|$)|authoriz|bearer|cookie|(^|[-_.])(key|pass|pat|pw)$|(?-i:[a-z0-9]Key$)`)
})

// isSecretName reports whether the value of a setting is a secret by its name.
func isSecretName(name string) bool {
	return secretName().MatchString(name)
}

// secretWord matches words of values that come with secrets.
var secretWord = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)token|secret|passw|credential|api_?key|_auth`)
})

// urlQuery matches the query of a URL, which may be a signature, and a user with a password in an address without a scheme.
var urlQuery = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`//\S*\?|(^|[\s/])[^\s/:@]+:[^\s/@]+@`) })

// condaToken matches the token in the URL of a channel of conda, up to its host and from there.
var condaToken = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(://[^/\s]+)/t/[^/\s]+`) })

// cleanValue removes users, passwords and tokens from the URLs in a value. It returns false for a value that may contain
// another secret. isProxy is for the value of a setting that may be an address without a scheme.
func cleanValue(value string, isProxy bool) (clean string, ok bool) {
	clean = condaToken().ReplaceAllString(config.StripUserinfo(value), "$1")
	if at := strings.LastIndexByte(clean, '@'); isProxy && at >= 0 && !strings.Contains(clean, "://") {
		clean = clean[at+1:]
	}
	if config.StripUserinfo(clean) != clean || condaToken().MatchString(clean) {
		return "", false
	}
	return clean, !secretWord().MatchString(clean) && !urlQuery().MatchString(clean) && !config.HasSecretText(clean)
}

// Lines filters a file in which each line stands for itself, such as .tool-versions: it removes the lines that name
// credentials.
func Lines(text string) (string, bool) {
	return keepLines(text, func(line string) (string, bool) { return cleanValue(line, false) }), true
}

// Asdfrc filters the settings of asdf: like Lines, without comments and the hooks, which are shell code.
func Asdfrc(text string) (string, bool) {
	return keepLines(text, func(line string) (string, bool) {
		line, ok := cleanValue(line, false)
		name := strings.TrimLeft(line, " \t")
		return line, ok && !slices.ContainsFunc([]string{"#", ";", "pre_", "post_"}, func(start string) bool { return strings.HasPrefix(name, start) })
	}), true
}

// inputrcLine matches the lines of settings of readline that are no macro: variables, conditions, and keys bound to a command,
// which is a name.
var inputrcLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*(?:|set\s.*|\$.*|(?:"(?:[^"\\]|\\.)*"|[^\s"':#]+)\s*:\s*[A-Za-z-]+)\s*$`)
})

// Inputrc filters the settings of readline. Macros are left out: some type a password. So are comments.
func Inputrc(text string) (string, bool) {
	return keepLines(text, func(line string) (string, bool) {
		line, ok := cleanValue(line, false)
		return line, ok && inputrcLine().MatchString(line)
	}), true
}

// Patterns filters a file with names of files or people, such as rules of ignored files. A name of a file with
// credentials is no secret.
func Patterns(text string) (string, bool) {
	return keepLines(text, func(line string) (string, bool) {
		return line, config.StripUserinfo(line) == line && !config.HasSecretText(line)
	}), true
}

// Variables filters a file with a variable and its value on each line, and keeps the variables that pass the walls.
func Variables(passes func(name string) bool) Filter {
	return func(text string) (string, bool) {
		return keepLines(text, func(line string) (string, bool) {
			name, value, isSetting := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
			value, ok := cleanValue(value, false)
			return name + "=" + value + "\n", isSetting && ok && passes(strings.TrimSpace(name))
		}), true
	}
}

// keepLines returns the lines that clean returns true for, as it returns them.
func keepLines(text string, clean func(line string) (string, bool)) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line, ok := clean(line); ok {
			out.WriteString(line)
		}
	}
	return out.String()
}

// pathScriptLine matches the lines of the script that rustup writes: a test whether PATH has a directory, which is added
// otherwise.
var pathScriptLine = sync.OnceValue(func() *regexp.Regexp {
	const dir = `(?:\$HOME)?(?:/[\w.+ -]+)+`
	return regexp.MustCompile(`^(?:#!/bin/sh|\s*(?:case ":\$\{PATH\}:" in|\*:"` + dir + `":\*\)(?:\s*;;)?|\*\)|export PATH="` + dir + `:\$PATH"|;;|esac)?\s*)$`)
})

// PathScript accepts a script that does nothing but extend PATH, in the form that rustup writes. It removes comments.
func PathScript(text string) (string, bool) {
	known := true
	clean := keepLines(text, func(line string) (string, bool) {
		isKnown := pathScriptLine().MatchString(strings.TrimSuffix(line, "\n"))
		isComment := strings.HasPrefix(strings.TrimLeft(line, " \t"), "#")
		known = known && (isKnown || isComment)
		return line, isKnown
	})
	same, ok := cleanValue(clean, false)
	return clean, known && ok && same == clean
}
