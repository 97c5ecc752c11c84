package config

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// secretNames are the last parts of keys whose values are secrets, or how they end: "*token" is each name that ends with
// token.
var secretNames = []string{
	"extraheader", // of http: mostly an authorization
	"pass", "smtppass", "pat", "pwd", "auth", "authorization", "bearer", "*credentials",
	"*password", "*passwd", "*passphrase", "*token", "*secret", "*apikey", "*api-key", "*accesskey", "*access-key", "*secretkey", "*secret-key", "*privatekey", "*private-key",
}

// notSecret are sections and keys that secretNames do not apply to.
var notSecret = []string{"agency.", "core.askpass"}

// secretFileNames are the last parts of http.* keys that name a file with a secret.
var secretFileNames = []string{"cookiefile", "sslkey", "proxysslkey"}

// secretTexts match values that contain a secret, whatever their key: an HTTP authorization, tokens of code hosts and
// package registries, and shell code with a literal password.
var secretTexts = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)authorization: *(basic|bearer|token)\b` +
		`|\b(gh[pousr]_|github_pat_|glpat-|npm_|pypi-|hf_|xox[abprs]-|dckr_pat_)[\w-]{16,}|\beyJ[\w-]{16,}\.|\bAKIA[0-9A-Z]{16}\b` +
		`|(password|passwd|token|secret|api[_-]?key|_pwd) *= *["']?[^\s$"';})]` +
		`|--([\w-]+-)?(password|passwd|pass|passphrase|token|secret) +["']?[^\s$"';})|&-]` +
		`|--([\w-]*(api|access|private|secret)-?)?key +["']?[^\s$"';})|&~/-]` +
		`|--passphrase=["']?[^\s$"';})]|(?-i:\b([A-Z0-9]+_)*(PASS|PASSPHRASE|PW|PWD|KEY|PAT|AUTH|CREDENTIALS?)=["']?[^\s$"';})~/])` +
		`|\b(mysql|mariadb)[\w-]*\s([^|;&]*\s)?-p["']?[^\s$"';})]|\bredis-cli\s[^|;&]*-a +["']?[^\s$"';})]|\b(ldap\w+|smbclient)\s[^|;&]*(-w +["']?[^\s$"']|-U *["']?[^\s%]+%[^\s$])` +
		`|\b(x-[\w-]*(key|token)|private-token|api-key|cookie): *[^\s$"']` +
		`|\bsshpass\s.*-p|\bcurl\s.*(-u|--user|--proxy-user)[ =]*["']?[^\s:]+:[^\s$]|-----BEGIN [A-Z ]*PRIVATE KEY`)
})

// secretWords has a word of every text that secretTexts match. To look for them is much faster than to compile the
// expression, which few files need, and every command behind walls reads these files.
var secretWords = []string{
	"authorization:", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-", "hf_", "xox", "dckr_pat_", "eyj", "akia",
	"password", "passwd", "token", "secret", "sshpass", "curl", "private key", "apikey", "api_key", "_pwd", "--pass", "mysql", "mariadb", "redis-cli", "ldap", "smbclient",
	"-key", "key:", "cookie:", "passphrase", "-pass ", "pass=", "pw=", "pwd=", "key=", "pat=", "auth=", "credential",
}

// HasSecretText reports whether a text contains a secret, whatever its key.
func HasSecretText(text string) bool {
	lower := strings.ToLower(text)
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(lower, word) }) && secretTexts().MatchString(text)
}

// urlUserinfo matches the beginning of a URL up to the end of its user and password.
var urlUserinfo = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\s@]*(?:@[^/?#\s@]*)*)@`)
})

// RemoveSecrets returns the text of a configuration file without secrets: entries with a secret and all comments, which often
// keep old settings, are left out. URLs lose their password and query, those of HTTP and FTP their user too, which is often a
// token. It leaves all other text as it is, and fails for a file that it cannot parse.
func RemoveSecrets(text string) (string, error) {
	plain := withUnixLineEnds(text)
	parts, err := parseParts(plain)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range parts {
		switch p.kind {
		case blankPart:
			out.WriteString(removeComments(p.text, out.Len() == 0 || strings.HasSuffix(out.String(), "\n")))
		case headerPart:
			if sub := cleanSubsection(p.section, p.subsection); sub != p.subsection {
				p.text = "[" + p.section + " " + quoteSubsection(sub) + "]"
			}
			out.WriteString(p.text)
		case entryPart:
			out.WriteString(removeFromEntry(p))
		}
	}
	if out.String() == plain {
		return text, nil
	}
	return out.String(), nil
}

// cleanSubsection returns a subsection, which may be a URL, without secrets. A header cannot be left out, since the
// settings below it would belong to the one before.
func cleanSubsection(section, subsection string) string {
	clean := StripUserinfo(subsection)
	if section != "includeif" || HasSecretText(clean) { // a question mark in a condition is a pattern
		clean = StripURLSecrets(clean)
	}
	if HasSecretText(clean) {
		return "removed"
	}
	return clean
}

// withUnixLineEnds removes what git ignores in a file and ParseFile refuses.
func withUnixLineEnds(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\r\n", "\n")
}

// ParseAnyFile is ParseFile for a file that RemoveSecrets can parse; it returns nothing for others.
func ParseAnyFile(text string) []FileEntry {
	entries, err := ParseFile(withUnixLineEnds(text))
	if err != nil {
		return nil
	}
	return entries
}

func removeFromEntry(p filePart) string {
	if isSecret(p.entry) {
		return ""
	}
	value := stripValue(p.entry)
	switch {
	case value != p.entry.Value:
	case p.comment == "":
		return p.text
	default:
		return strings.TrimRight(strings.TrimSuffix(p.text, p.comment), " \t") + lineEnd(p.text)
	}
	name, _, _ := strings.Cut(p.text, "=")
	return strings.TrimRight(name, " \t") + " = " + quoteValue(value) + lineEnd(p.text)
}

// lineEnd returns the line end of a text, if it has one.
func lineEnd(text string) string { return text[len(strings.TrimSuffix(text, "\n")):] }

// stripValue returns the value of a setting without passwords and queries in URLs. Shell code keeps queries, which isSecret
// looks at: without them it would do something else.
func stripValue(e FileEntry) string {
	value := StripUserinfo(e.Value)
	if !strings.HasPrefix(value, "!") {
		value = StripURLSecrets(value)
	}
	if nameOf(e.Key) == "proxy" { // it may have no scheme
		if at := strings.LastIndexByte(value, '@'); at >= 0 && !strings.Contains(value[:at], "/") {
			value = value[at+1:]
		}
	}
	return value
}

// isSecret reports whether a setting must be left out.
func isSecret(e FileEntry) bool {
	if e.NoValue || e.Value == "" { // an empty value clears the ones before it
		return false
	}
	if IsSecretKey(e.Key) || e.Key == "core.askpass" && strings.ContainsAny(e.Value, " \t") { // a program with arguments may print one
		return true
	}
	if strings.HasPrefix(e.Value, "!") && strings.Contains(e.Value, "?") && literalQuery().MatchString(e.Value) {
		return true
	}
	if !HasSecretText(e.Value) {
		return false
	}
	return strings.HasPrefix(e.Value, "!") || strings.HasPrefix(e.Key, "credential.") || HasSecretText(StripUserinfo(e.Value))
}

// IsSecretKey reports whether the values of a key, spelled as git prints it, are secrets.
func IsSecretKey(key string) bool {
	if slices.ContainsFunc(notSecret, func(n string) bool { return key == n || strings.HasSuffix(n, ".") && strings.HasPrefix(key, n) }) {
		return false
	}
	name := nameOf(key)
	return slices.ContainsFunc(secretNames, func(secret string) bool {
		end, family := strings.CutPrefix(secret, "*")
		return name == secret || family && strings.HasSuffix(name, end)
	})
}

// nameOf returns the last part of a key.
func nameOf(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// SecretFile returns the path of a file with secrets that a setting names, as it is spelled there; empty if it names
// none.
func SecretFile(e FileEntry) string {
	switch name := nameOf(e.Key); {
	case strings.HasPrefix(e.Key, "http.") && slices.Contains(secretFileNames, name) && !e.NoValue:
		return e.Value
	case strings.HasPrefix(e.Key, "credential.") && name == "helper":
		words := strings.Fields(e.Value)
		for i, word := range words {
			if path, is := strings.CutPrefix(word, "--file="); is {
				return strings.Trim(path, `"'`)
			}
			if word == "--file" && i+1 < len(words) {
				return strings.Trim(words[i+1], `"'`)
			}
		}
	}
	return ""
}

// StripUserinfo removes the passwords from the URLs in a text, and the users from those of HTTP and FTP.
func StripUserinfo(text string) string {
	if !strings.Contains(text, "@") || !strings.Contains(text, "://") {
		return text
	}
	return urlUserinfo().ReplaceAllStringFunc(text, func(match string) string {
		scheme, userinfo, _ := strings.Cut(match, "://")
		user, _, hasPassword := strings.Cut(strings.TrimSuffix(userinfo, "@"), ":")
		switch protocol := scheme[strings.LastIndexByte(scheme, '+')+1:]; strings.ToLower(protocol) { // such as sparse+https
		case "http", "https", "ftp", "ftps":
			return scheme + "://"
		}
		if hasPassword {
			return scheme + "://" + user + "@"
		}
		return match
	})
}

// urlWithQuery matches a URL up to its query, and the query.
var urlWithQuery = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s?]*)\?\S*`) })

// literalQuery matches a URL with a query in shell code that has a long value and no variable.
var literalQuery = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`://[^\s?"']*\?[^\s"']*=[^\s$"'&]{8}`) })

// StripURLSecrets is StripUserinfo that also removes the queries of URLs, which may be signatures or tokens.
func StripURLSecrets(text string) string {
	text = StripUserinfo(text)
	if !strings.Contains(text, "?") || !strings.Contains(text, "://") {
		return text
	}
	return urlWithQuery().ReplaceAllString(text, "$1")
}

// StripReflog removes the passwords from the URLs in a reflog, and the queries from those that git writes there itself.
func StripReflog(text string) string {
	text = StripUserinfo(text)
	if !strings.Contains(text, "?") || !strings.Contains(text, "://") {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		_, message, _ := strings.Cut(line, "\t")
		switch verb, _, _ := strings.Cut(message, " "); strings.TrimSuffix(verb, ":") {
		case "pull", "fetch", "clone":
			line = StripURLSecrets(line)
		}
		out.WriteString(line)
	}
	return out.String()
}

// removeComments removes the comments from white space between settings, with their lines. The first line is only the rest of
// one unless atLineStart; its line end stays.
func removeComments(text string, atLineStart bool) string {
	if !strings.ContainsAny(text, "#;") {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		switch isComment := strings.ContainsAny(line, "#;"); {
		case !isComment:
			out.WriteString(line)
		case !atLineStart:
			out.WriteString(lineEnd(line))
		}
		atLineStart = true
	}
	return out.String()
}

// quoteValue writes a value so that git reads it back.
func quoteValue(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(value) + `"`
}
