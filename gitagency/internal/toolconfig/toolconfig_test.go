package toolconfig

import (
	"strings"
	"testing"
)

// mark stands for a secret; no filter may return it.
const mark = "hunter2hunter2"

func passes(name string) bool {
	return name == "CC" || strings.HasPrefix(name, "GO") && name != "GOAUTH"
}

type filterCase struct{ text, want string }

// checkFilter runs a filter on texts in which hunter2hunter2 is a secret. The result "-" is a file that is left out.
func checkFilter(t *testing.T, filter Filter, cases map[string]filterCase) {
	t.Helper()
	for name, c := range cases {
		got, ok := filter(c.text)
		if !ok {
			got = "-"
		}
		if got != c.want || strings.Contains(got, mark) {
			t.Errorf("%s:\n%q becomes\n%q, want\n%q", name, c.text, got, c.want)
		}
	}
}

func TestTOML(t *testing.T) {
	t.Parallel()
	checkFilter(t, TOML(passes), map[string]filterCase{
		"nothing secret":                  {"# c\n[build]\njobs = 2 # two\nx.y = [ 1, 2.5, true, 'a', ] \n", "[build]\njobs = 2\nx.y = [ 1, 2.5, true, 'a', ]\n"},
		"token of a registry":             {"[registries.x]\nindex = \"https://a\"\ntoken = \"hunter2hunter2\"\n", "[registries.x]\nindex = \"https://a\"\n"},
		"token on a line of its own":      {"[registry]\ntoken = \"\"\"\nhunter2hunter2\"\"\"\n[net]\noffline = true\n", "[registry]\n[net]\noffline = true\n"},
		"token in an inline table":        {"[registries]\nw = { index = 'a', token = \"hunter2hunter2\" }\nv = { index = 'a' }\n", "[registries]\nv = { index = 'a' }\n"},
		"token with an escape":            {"\"tok\\u0065n\" = \"hunter2hunter2\"\nk = 1\n", "k = 1\n"},
		"token in dotted key":             {"registries.x . token = 'hunter2hunter2'\n", ""},
		"table with a secret name":        {"[credential-alias]\nx = [\n  'hunter2hunter2',\n]\n[a]\nb = 1\n", "[a]\nb = 1\n"},
		"program that prints a token":     {"[registry]\ncredential-provider = [\"cargo:token-from-stdout\", \"echo\",\n \"hunter2hunter2\"]\n", "[registry]\n"},
		"user in a URL":                   {"url = \"https://me:hunter2hunter2@a.example/s\"\n", "url = \"https://a.example/s\"\n"},
		"user in a URL of a list":         {"extra = [ # first\n 'https://hunter2hunter2@a/s', # second\n 'b' ]\n", "extra = [ \n \"https://a/s\", \n 'b' ]\n"},
		"user in an escaped URL":          {"url = \"https:\\u002f\\u002fme:hunter2hunter2@a\"\n", "url = \"https://a\"\n"},
		"user of sparse":                  {"index = 'sparse+https://hunter2hunter2@a/'\n", "index = \"sparse+https://a/\"\n"},
		"user of ssh stays":               {"index = 'ssh://git@a/'\n", "index = 'ssh://git@a/'\n"},
		"user in a table":                 {"[source.\"https://hunter2hunter2@a\"]\nx = 1\n[b]\n", "[b]\n"},
		"proxy without a scheme":          {"[http]\nproxy = \"me:hunter2hunter2@proxy:80\"\n", "[http]\nproxy = \"proxy:80\"\n"},
		"variables":                       {"[env]\nCC = 'gcc'\nGH_PAT = 'hunter2hunter2'\nX = { value = 'hunter2hunter2', force = true }\n", "[env]\nCC = 'gcc'\n"},
		"variables in an inline table":    {"env = { CC = 'gcc', X = 'hunter2hunter2' }\n[a]\nenv = ['hunter2hunter2']\n", "[a]\n"},
		"variables of a list of tables":   {"[[env]]\nX = '''\nhunter2hunter2\n'''\n_.file = '.env'\n", "[[env]]\n"},
		"variables of a task":             {"[tasks.x]\nrun = 'curl -H hunter2hunter2'\n[hooks]\nenter = 'hunter2hunter2'\n[tools]\nnode = '20'\n", "[tools]\nnode = '20'\n"},
		"code of mise":                    {"[[watch_files]]\nrun = 'x hunter2hunter2'\n[shell_alias]\nup = 'x hunter2hunter2'\n[tools]\ngo = '1'\n", "[tools]\ngo = '1'\n"},
		"code after an installation":      {"[tools]\nnode = { version = '20', postinstall = 'x hunter2hunter2' , os = ['linux'] }\n[tools.go]\nversion = '1'\npostinstall = '''\nx hunter2hunter2'''\n", "[tools]\nnode = { version = '20', postinstall = \"\" , os = ['linux'] }\n[tools.go]\nversion = '1'\n"},
		"code that is a list":             {"a = { postinstall = [ 'token', # hunter2hunter2\n 'https://hunter2hunter2@a' ], b = 1 }\n", "a = { postinstall = \"\", b = 1 }\n"},
		"code beside a token":             {"a = { token = 'hunter2hunter2', postinstall = 'x' }\nb = { postinstall = 'x', token = 'hunter2hunter2' }\n", ""},
		"comment with a secret":           {"# token = hunter2hunter2\na = 1 # hunter2hunter2\n", "a = 1\n"},
		"quotes at the end of a string":   {"a = \"\"\"b\"\"\"\"\"\ntoken = \"hunter2hunter2\"\n", "a = \"\"\"b\"\"\"\"\"\n"},
		"line that goes on":               {"url = \"\"\"https://me:\\\n   hunter2hunter2@a\"\"\"\n", "url = \"https://a\"\n"},
		"CRLF":                            {"a = 1\r\ntoken = 'hunter2hunter2'\r\n", "a = 1\n"},
		"byte order mark":                 {"\xef\xbb\xbftoken = 'hunter2hunter2'\n", ""},
		"string without an end":           {"a = \"\"\"\nhunter2hunter2\n", "-"},
		"two settings on a line":          {"a = 1 b = 'hunter2hunter2'\n", "-"},
		"no setting":                      {"hunter2hunter2\n", "-"},
		"array without an end":            {"a = [ 'hunter2hunter2'\n", "-"},
		"arrays nested too deep":          {"a = " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n", "-"},
		"invalid escape":                  {"a = \"\\q\"\n", "-"},
		"table without an end":            {"[a\n", "-"},
		"invalid UTF-8":                   {"a = '\xff'\n", "-"},
		"date":                            {"d = 1979-05-27T07:32:00-08:00\n", "d = 1979-05-27T07:32:00-08:00\n"},
		"author is no secret":             {"authors = ['me']\n", "authors = ['me']\n"},
		"short names":                     {"pass = 'hunter2hunter2'\ngh.pat = 'hunter2hunter2'\ndb_pw = 'hunter2hunter2'\npath = 'x'\n", "path = 'x'\n"},
		"query of a URL":                  {"url = 'https://a/x?sig=hunter2hunter2'\nb = 'c?'\n", "b = 'c?'\n"},
		"password without a scheme":       {"a = 'me:hunter2hunter2@h/git'\nb = '//me:hunter2hunter2@h/'\nc = 'git@h:org/x'\n", "c = 'git@h:org/x'\n"},
		"no line end":                     {"a = 1", "a = 1\n"},
		"key of a private key in a value": {"a = '-----BEGIN OPENSSH PRIVATE KEY-----'\n", ""},
	})
}

func TestYAML(t *testing.T) {
	t.Parallel()
	checkFilter(t, YAML, map[string]filterCase{
		"nothing secret":           {"# c\nchannels:\n  - defaults # main\n  - https://a.example/c\nssl_verify: true\npkgs_dirs: []\n", "channels:\n  - defaults\n  - https://a.example/c\nssl_verify: true\npkgs_dirs: []\n"},
		"start after a comment":    {"# c\n\n---\nchannels:\n- defaults\n", "channels:\n- defaults\n"},
		"second document":          {"x: 1\n---\ny: hunter2hunter2\n", "-"},
		"two starts":               {"---\n---\nx: hunter2hunter2\n", "-"},
		"ssh key":                  {"ssh_key: hunter2hunter2\nx: 1\n", "x: 1\n"},
		"items without indent":     {"---\nchannels:\n- defaults\nx: 1\n", "channels:\n- defaults\nx: 1\n"},
		"user in a channel":        {"channels:\n  - https://me:hunter2hunter2@a.example/c\n  - 'https://hunter2hunter2@b'\n", "channels:\n  - https://a.example/c\n  - 'https://b'\n"},
		"token in a channel":       {"channels:\n  - https://a.example/t/hunter2hunter2/chan\nchannel_alias: https://a.example/t/hunter2hunter2\n", "channels:\n  - https://a.example/chan\nchannel_alias: https://a.example\n"},
		"password of a proxy":      {"proxy_servers:\n  http: http://me:hunter2hunter2@p:8080\n  https: me:hunter2hunter2@p:8080\n", "proxy_servers:\n  http: http://p:8080\n  https: p:8080\n"},
		"value on the next line":   {"anaconda:\n   hunter2hunter2\nx: 1\n", "x: 1\n"},
		"list of tokens":           {"token:\n  - hunter2hunter2\nx: 1\n", "x: 1\n"},
		"nested token":             {"channel_settings:\n  - channel: a\n    auth: hunter2hunter2\nx: 1\n", "x: 1\n"},
		"nested keys":              {"channel_settings:\n  - channel: a\n    type: b\n  - channel: c\n", "channel_settings:\n  - channel: a\n    type: b\n  - channel: c\n"},
		"folded":                   {"a: >-\n  hunter2hunter2\nb: |\n  hunter2hunter2\nx: 1\n", "x: 1\n"},
		"plain over two lines":     {"a: https://me:\n  hunter2hunter2@p\nx: 1\n", "x: 1\n"},
		"item over two lines":      {"a:\n  - https://me:\n    hunter2hunter2@p\nx: 1\n", "x: 1\n"},
		"quoted over two lines":    {"a: \"b\n  hunter2hunter2\"\nx: 1\n", "x: 1\n"},
		"quoted key":               {"a:\n  \"token\": hunter2hunter2\nx: 1\n", "x: 1\n"},
		"flow":                     {"a: {token: hunter2hunter2}\nb: [hunter2hunter2]\nx: 1\n", "x: 1\n"},
		"anchor":                   {"a: &x hunter2hunter2\nb: *x\ny: !!str hunter2hunter2\nx: 1\n", "x: 1\n"},
		"escapes":                  {"a: \"https:\\x2f\\x2fme:hunter2hunter2@b\"\nx: 1\n", "x: 1\n"},
		"tabs":                     {"a:\n\t- hunter2hunter2\nx: 1\n", "-"},
		"comment":                  {"#token: hunter2hunter2\nx: 1 # hunter2hunter2\n", "x: 1\n"},
		"document of its own":      {"x: 1\n...\nhunter2hunter2\n", "-"},
		"list alone":               {"- hunter2hunter2\n", "-"},
		"quoted key at the margin": {"\"token\": hunter2hunter2\n", "-"},
		"setting in one line":      {"{token: hunter2hunter2}\n", "-"},
		"CRLF":                     {"x: 1\r\ntoken: hunter2hunter2\r\n", "x: 1\n"},
	})
}

func TestOtherFilters(t *testing.T) {
	t.Parallel()
	checkFilter(t, Lines, map[string]filterCase{
		"versions":   {"go 1.22\nnode 20", "go 1.22\nnode 20"},
		"credential": {"a = 1\nPassword: hunter2hunter2", "a = 1\n"},
		"user":       {"a https://hunter2hunter2@b/\n", "a https://b/\n"},
	})
	checkFilter(t, Asdfrc, map[string]filterCase{
		"hooks":      {"legacy_version_file = yes\npost_asdf_install = x hunter2hunter2\n  # pre_asdf_update = x hunter2hunter2\n;pre_z = hunter2hunter2\n", "legacy_version_file = yes\n"},
		"credential": {"plugin_url = https://hunter2hunter2@a/\ntoken = hunter2hunter2\n", "plugin_url = https://a/\n"},
	})
	checkFilter(t, Inputrc, map[string]filterCase{
		"variables and conditions": {"set editing-mode vi\n$if Bash\n  set x on\n$endif\n\n$include /etc/inputrc\n", "set editing-mode vi\n$if Bash\n  set x on\n$endif\n\n$include /etc/inputrc\n"},
		"commands":                 {"\"\\e[A\": history-search-backward\nControl-u: universal-argument\n\"\\\"\" : self-insert\n", "\"\\e[A\": history-search-backward\nControl-u: universal-argument\n\"\\\"\" : self-insert\n"},
		"macros":                   {"\"\\C-xp\": \"hunter2hunter2\\n\"\nMeta-p: 'hunter2hunter2'\n\"a\": \"b\": \"hunter2hunter2\"\n", ""},
		"comments":                 {"# \"\\C-xp\": \"hunter2hunter2\"\n", ""},
	})
	checkFilter(t, Patterns, map[string]filterCase{
		"names of secret files": {"*.token\ncredentials.json\n# secret\n", "*.token\ncredentials.json\n# secret\n"},
		"a secret":              {"a\n# token=hunter2hunter2\n# https://hunter2hunter2@a/\n", "a\n"},
	})
	checkFilter(t, Variables(passes), map[string]filterCase{
		"go":       {"GOPROXY=https://me:hunter2hunter2@p,direct\nGOFLAGS=-mod=mod\n", "GOPROXY=https://p,direct\nGOFLAGS=-mod=mod\n"},
		"unknown":  {"GOAUTH=command hunter2hunter2\nX=hunter2hunter2\nhunter2hunter2\n#hunter2hunter2\n", ""},
		"a secret": {"GOFLAGS=-x=ghp_hunter2hunter20123456789\n", ""},
	})
	for _, dir := range []string{"$HOME/.cargo/bin", "/opt/my tools/cargo-1.2/bin"} {
		rustup := "#!/bin/sh\ncase \":${PATH}:\" in\n    *:\"" + dir + "\":*)\n        ;;\n    *)\n        export PATH=\"" + dir + ":$PATH\"\n        ;;\nesac\n"
		cases := map[string]filterCase{
			"rustup":   {rustup, rustup},
			"comments": {"# rustup shell setup\n" + rustup + "\t# hunter2hunter2\n", rustup},
			"one line": {"*:\"" + dir + "\":*) ;;\n", "*:\"" + dir + "\":*) ;;\n"},
		}
		for name, line := range map[string]string{
			"another variable": "export X=hunter2hunter2", "an appended one": "X+=hunter2hunter2", "a here document": "cat <<E\nhunter2hunter2\nE",
			"a command": "curl -u me:hunter2hunter2 https://a", "a pipe": "printf hunter2hunter2 | gh login --stdin", "arguments": "set -- hunter2hunter2; . ~/.private",
			"a command after a line": "esac; login hunter2hunter2", "a comment after a line": "esac # hunter2hunter2",
			"a command in PATH": "export PATH=\"$(login hunter2hunter2):$PATH\"", "a variable in PATH": "export PATH=\"/a/${X:=hunter2hunter2}:$PATH\"",
			"a case": "hunter2hunter2) ;;", "a carriage return": "# x\rhunter2hunter2\nlogin",
		} {
			cases[name] = filterCase{rustup + line + "\n", "-"}
		}
		checkFilter(t, PathScript, cases)
	}
}

// FuzzFilters puts a secret between any two texts, in each kind of file. No filter may return it, and nothing may be left
// to remove from a result.
func FuzzFilters(f *testing.F) {
	f.Add("a = 1\n", "b = 2\n")
	f.Add("a = \"\"\"x", "\"\"\"\n")
	f.Add("a = [ '''", "''' ]\n")
	f.Add("x = { y = [1,", "] }\n")
	f.Add("[env]\nCC = \"\\", "\"")
	f.Add("channels:\n  - https://a:b@c/t/d/e\n", "x: 'y'\n")
	f.Add("a: \"", "\"\n")
	f.Add("a: |\n  b\n", "  c\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before+after, mark) {
			return
		}
		for _, c := range []struct {
			name   string
			filter Filter
			secret string
		}{
			{"TOML", TOML(passes), "\ntoken = \"" + mark + "\"\n"},
			{"TOML string", TOML(passes), "\ntoken = '''\n" + mark + "'''\n"},
			{"TOML URL", TOML(passes), "\nurl = \"https://me:" + mark + "@a\"\n"},
			{"YAML", YAML, "\ntoken: " + mark + "\n"},
			{"YAML list", YAML, "\ntoken:\n  - " + mark + "\n"},
			{"YAML next line", YAML, "\ntoken:\n  " + mark + "\n"},
			{"YAML URL", YAML, "\nchannels:\n- https://a/t/" + mark + "/b\n"},
			{"lines", Lines, "\ntoken " + mark + "\n"},
			{"patterns", Patterns, "\ntoken=" + mark + "\n"},
			{"variables", Variables(passes), "\nGOAUTH=" + mark + "\n"},
			{"script", PathScript, "\nX=" + mark + "\n"},
		} {
			got, ok := c.filter(before + c.secret + after)
			if ok && strings.Contains(got, mark) {
				t.Errorf("%s: %q becomes %q", c.name, before+c.secret+after, got)
			}
			if again, stillOK := c.filter(got); ok && (!stillOK || again != got) {
				t.Errorf("%s: %q becomes %q and then %q, %v", c.name, before+c.secret+after, got, again, stillOK)
			}
		}
	})
}
