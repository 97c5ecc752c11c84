package gitagency

import "github.com/git-agency/git-agency/gitagency/quote"

// ShellQuote is quote.Shell.
func ShellQuote(word string) string { return quote.Shell(word) }
