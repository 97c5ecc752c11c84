package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestIsSecretKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"http.extraheader": true, "http.https://a.example/b.c.extraheader": true,
		"credential.https://a.example.password": true, "sendemail.smtppass": true, "sendemail.work.smtppass": true, "imap.pass": true,
		"github.token": true, "github.oauth-token": true, "gitlab.accesstoken": true, "hub.oauthtoken": true, "x.pat": true, "x.client-secret": true, "x.apikey": true,
		"remote.origin.url": false, "core.askpass": false, "user.signingkey": false, "http.sslcertpasswordprotected": false, "credential.helper": false,
		"agency.secret": false, "agency.sandbox.env": false, "core.bypass": false, "pass.word": false, "branch.token.merge": false,
	} {
		if IsSecretKey(key) != want {
			t.Errorf("%s: %v", key, !want)
		}
	}
}

func TestRemoveSecrets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"nothing secret":               {"\n[core]\n\tbare = false\n[remote \"o\"]\n\turl = ssh://git@a.example/r\n", ""},
		"user and password":            {"[remote \"o\"]\n\turl = https://me:pw@a.example/r.git\n", "[remote \"o\"]\n\turl = \"https://a.example/r.git\"\n"},
		"a token as the user":          {"[remote \"o\"]\n\tpushUrl=https://ghp_x@a.example/r\n", "[remote \"o\"]\n\tpushUrl = \"https://a.example/r\"\n"},
		"a password with @":            {"[a]\nu = http://me:p@w@a.example:1/r@v\n", "[a]\nu = \"http://a.example:1/r@v\"\n"},
		"the user of ssh stays":        {"[a]\nu = ssh://git:pw@a.example/r\n", "[a]\nu = \"ssh://git@a.example/r\"\n"},
		"a quoted value":               {"[a]\nu = \"https://me:p\\\"w\"@a.example/r # x\n", "[a]\nu = \"https://a.example/r\"\n"},
		"a value of several lines":     {"[a]\nu = https://me:p\\\nw@a.example/r\nv = 1\n", "[a]\nu = \"https://a.example/r\"\nv = 1\n"},
		"several URLs":                 {"[a]\nu = x https://a:b@c y https://d:e@f\n", "[a]\nu = \"x https://c y https://f\"\n"},
		"a subsection":                 {"[URL \"https://oauth2:tok@a.example/\"] ; c\n\tinsteadOf = https://a.example/\n", "[url \"https://a.example/\"]\n\tinsteadOf = https://a.example/\n"},
		"a subsection with quotes":     {"[url \"https://t@a/\\\"x\\\\\"]\nk = v\n", "[url \"https://a/\\\"x\\\\\"]\nk = v\n"},
		"a token in the query of URL":  {"[url \"https://a.example/?private_token=x\"]\ninsteadOf = z:\n", "[url \"https://a.example/\"]\ninsteadOf = z:\n"},
		"a token as a subsection":      {"[x \"token=y\"]\nk = v\n", "[x \"removed\"]\nk = v\n"},
		"a token of a compound scheme": {"[a]\nu = sparse+https://tok@b.example/\n", "[a]\nu = \"sparse+https://b.example/\"\n"},
		"a password for ssh":           {"[core]\nsshCommand = sshpass -p pw ssh\neditor = vi\n", "[core]\neditor = vi\n"},
		"an ssh without a password":    {"[core]\nsshCommand = ssh -i ~/.ssh/id -p 22\n", ""},
		"a password for curl":          {"[alias]\nup = !curl -u me:pw https://a.example\ndown = !curl -O https://a.example\n", "[alias]\ndown = !curl -O https://a.example\n"},
		"passwords in aliases":         {"[alias]\na = !mysql -u me -phunter2 db\nb = !mysqldump --password hunter2\nc = !MYSQL_PWD=hunter2 mysql\nd = !redis-cli -h x -a hunter2\ne = !curl -H 'X-Api-Key: hunter2' x\nf = !x --token hunter2\ng = !http x X-Authkey:hunter2\n", "[alias]\n"},
		"aliases without a password":   {"[alias]\na = !git log --oneline\nb = !mysql -p db\nc = !mysql --password=$PW my-pay\nd = !redis-cli ping | sort -a x\ne = !cd $(pwd) && git push --tokens\nf = !x --token \"$T\"\n", ""},
		"a passphrase for a program":   {"[gpg]\nprogram = gpg --passphrase hunter2\n[diff \"x\"]\ntextconv = x --passphrase=hunter2\n[filter \"y\"]\nclean = y --db-pass hunter2\n", "[gpg]\n[diff \"x\"]\n[filter \"y\"]\n"},
		"a program without one":        {"[gpg]\nprogram = gpg --passphrase-file ~/x --key ~/y --keyring z\n", ""},
		"an askpass that prints":       {"[core]\naskPass = echo hunter2\naskPass = /usr/bin/ssh-askpass\n", "[core]\naskPass = /usr/bin/ssh-askpass\n"},
		"keys in aliases":              {"[alias]\na = !x --secret-access-key hunter2\nb = !PASS=hunter2 x\nc = !x --key hunter2\nd = !curl https://a/?t=hunter2hunter2\n", "[alias]\n"},
		"aliases without a key":        {"[alias]\na = !sort --key=2\nb = !KEY=$1 x\nc = !open https://a/?q=$1\nd = !open https://a/?tab=x\n", ""},
		"queries of URLs":              {"[url \"https://a/?t=hunter2\"]\ninsteadOf = z:\n[fetch]\nbundleURI = https://a/b?t=hunter2\n[includeIf \"hasconfig:remote.*.url:https://a/?b/**\"]\npath = x\n", "[url \"https://a/\"]\ninsteadOf = z:\n[fetch]\nbundleURI = \"https://a/b\"\n[includeIf \"hasconfig:remote.*.url:https://a/?b/**\"]\npath = x\n"},
		"other names":                  {"[my]\nauth = x\npwd = x\nbearer = x\ncredentials = x\nauthor = y\n", "[my]\nauthor = y\n"},
		"a proxy with a password":      {"[http]\nproxy = http://me:pw@proxy:80\n", "[http]\nproxy = \"http://proxy:80\"\n"},
		"tokens of registries":         {"[a]\nb = npm_0123456789abcdefghij\nc = AKIA0123456789ABCDEF\nd = eyJhbGciOiJIUzI1NiIsInR5cCI6.eyJ\ne = npm_x\n", "[a]\ne = npm_x\n"},
		"extra header":                 {"[http \"https://a.example/\"]\n\textraHeader = AUTHORIZATION: basic eA==\n\tsslVerify = true\n", "[http \"https://a.example/\"]\n\t\tsslVerify = true\n"},
		"spelling of the key":          {"[HTTP]\nExtraHeader=x\n[GitHub]\nTOKEN = y\n", "[HTTP]\n[GitHub]\n"},
		"a dotted section":             {"[github.work]\ntoken = y\n", "[github.work]\n"},
		"a key on the line of section": {"[github] token = y\nuser = me\n", "[github] user = me\n"},
		"an empty value stays":         {"[http]\nextraHeader =\n[credential]\nhelper = \n", ""},
		"a helper with a password":     {"[credential]\n\thelper = \"!f() { echo username=me; echo password=pw; }; f\"\n", "[credential]\n\t"},
		"a helper that prints":         {"[credential]\nhelper = \"!printf 'password=%s' pw\"\n", "[credential]\n"},
		"a helper without a secret":    {"[credential]\nhelper = \"!f() { echo password=$TOKEN; }; f\"\nhelper = !gh auth git-credential\nhelper = store\n", ""},
		"a header in an alias":         {"[alias]\na = \"!curl -H 'Authorization: Bearer x'\"\nb = log\n", "[alias]\nb = log\n"},
		"a token in an alias":          {"[alias]\na = !x ghp_0123456789abcdefghij\n", "[alias]\n"},
		"a proxy without a scheme":     {"[http]\nproxy = me:pw@proxy:80\n[remote \"o\"]\nproxy = proxy:80\n", "[http]\nproxy = \"proxy:80\"\n[remote \"o\"]\nproxy = proxy:80\n"},
		"comments":                     {"# url = https://me:pw@a.example/\n  ; token = x\n# my token = x\n# plain\n[a] ; x\nk = v ; https://t@a/\nl = \"#;\"\t# x\nm = a;b\n  # x", "[a]\nk = v\nl = \"#;\"\nm = a\n"},
		"includes stay":                {"[include]\npath = ~/x\n[includeIf \"gitdir:~/w/\"]\npath = y\n", ""},
		"CRLF":                         {"[a]\r\nu = https://t@b/\r\n# c\r\n", "[a]\nu = \"https://b/\"\n"},
		"CRLF without secrets":         {"[a]\r\nu = b\r\n", ""},
		"a byte order mark":            {"\xef\xbb\xbf[github]\ntoken = x\n", "[github]\n"},
		"no line end":                  {"[a]\nu = https://t@b", "[a]\nu = \"https://b\""},
	} {
		got, err := RemoveSecrets(c.text)
		if c.want == "" {
			c.want = c.text
		}
		if err != nil || got != c.want {
			t.Errorf("%s:\ngot  %q, %v\nwant %q", name, got, err, c.want)
		}
	}
	for _, text := range []string{"[a\nk = v\n", "k = v\n", "[a]\nk = \"v\n", "[a]\nk = v\x00\n", "[a]\nk = \\x\n"} {
		if got, err := RemoveSecrets(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestStripURLs(t *testing.T) {
	t.Parallel()
	const line = "0 1 Me <m@e> 1 +0000\t"
	for text, want := range map[string][2]string{ // StripURLSecrets, StripReflog
		"x of https://me:pw@a.example/r?sig=pw y": {"x of https://a.example/r y", "x of https://a.example/r?sig=pw y"},
		"what? a ?b": {"what? a ?b", "what? a ?b"},
		line + "pull https://a/r?sig=pw main: Fast-forward\n" + line + "commit: see https://a/?q=1\n": {
			line + "pull https://a/r main: Fast-forward\n" + line + "commit: see https://a/\n", line + "pull https://a/r main: Fast-forward\n" + line + "commit: see https://a/?q=1\n",
		},
		line + "clone: from https://a/r?x\n": {line + "clone: from https://a/r\n", line + "clone: from https://a/r\n"},
	} {
		if got := [2]string{StripURLSecrets(text), StripReflog(text)}; got != want {
			t.Errorf("%q:\ngot  %q\nwant %q", text, got, want)
		}
	}
}

func TestSecretFile(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]FileEntry{
		"~/cookies":  {Key: "http.cookiefile", Value: "~/cookies"},
		"/k":         {Key: "http.https://a.example.sslkey", Value: "/k"},
		"/p":         {Key: "http.proxysslkey", Value: "/p"},
		"~/work.txt": {Key: "credential.helper", Value: "store --file ~/work.txt"},
		"/s":         {Key: "credential.https://a.example.helper", Value: "store --file=\"/s\""},
		"":           {Key: "core.attributesfile", Value: "/a"},
	} {
		if got := SecretFile(e); got != want {
			t.Errorf("%s: %q, want %q", e.Key, got, want)
		}
	}
}

// FuzzRemoveSecrets checks that git reads from the result the settings of the original, except secrets, and that nothing
// is left to remove.
func FuzzRemoveSecrets(f *testing.F) {
	f.Add("[a \"https://t@b/\"]\n\tu = \"https://me:p # w@c\" d ; https://t@e\n\tg\n[http] extraHeader = x\\\ny\nk = v\n")
	f.Add("[remote \"o\"]\nurl = https://me:pw@a.example/r\n# token = x\nproxy = a@b\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := RemoveSecrets(text)
		if err != nil || strings.Contains(text, "\r") || strings.HasPrefix(text, "\xef\xbb\xbf") {
			return
		}
		if again, err := RemoveSecrets(got); err != nil || again != got {
			t.Errorf("%q became %q and then %q, %v", text, got, again, err)
		}
		parts, err := parseParts(text)
		if err != nil {
			t.Fatal(err)
		}
		var want []FileEntry
		section := ""
		for _, p := range parts {
			switch {
			case p.kind == headerPart && p.hasSubsection:
				section = p.section + "." + cleanSubsection(p.section, p.subsection)
			case p.kind == headerPart:
				section = p.section
			case p.kind == entryPart && !isSecret(p.entry):
				want = append(want, FileEntry{Key: section + "." + nameOf(p.entry.Key), Value: stripValue(p.entry), NoValue: p.entry.NoValue})
			}
		}
		entries, err := ParseFile(got)
		for i := range entries {
			entries[i].Ambiguous = false
		}
		if err != nil || !reflect.DeepEqual(entries, want) {
			t.Errorf("%q became %q\nhas  %+v, %v\nwant %+v", text, got, entries, err, want)
		}
		compareWithGit(t, filepath.Join(t.TempDir(), "config"), got)
	})
}

// TestRemoveSecretsKeepsSettingsOfGit compares what git reads before and after, for a file without secrets written by git.
func TestRemoveSecretsKeepsSettingsOfGit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config")
	for _, kv := range [][2]string{{"remote.o.url", "https://a.example/r"}, {"alias.x", "!f() { echo \"a;b\"; }; f"}, {"a.B c.d", "x\ty # z"}} {
		if out, err := exec.CommandContext(t.Context(), "git", "config", "--file", path, kv[0], kv[1]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := RemoveSecrets(string(data)); err != nil || got != string(data) {
		t.Errorf("%q became %q, %v", data, got, err)
	}
}
