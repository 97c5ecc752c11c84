package outlet

// Variables are the settings by which programs find the proxy at addr (host:port), with the names in both cases: some
// look for one, some for the other.
//
// Loopback is reached without the proxy, which would take it for the machine around the sandbox; unless just that is
// among the rules, and then programs cannot be told which of the two is meant: they all ask the proxy.
func Variables(addr string, rules Rules) []string {
	direct := "localhost,127.0.0.1,::1"
	if rules.reachesLoopback() {
		direct = ""
	}
	return []string{
		"HTTP_PROXY=http://" + addr, "http_proxy=http://" + addr,
		"HTTPS_PROXY=http://" + addr, "https_proxy=http://" + addr,
		"ALL_PROXY=socks5h://" + addr, "all_proxy=socks5h://" + addr,
		"NO_PROXY=" + direct, "no_proxy=" + direct,
	}
}
