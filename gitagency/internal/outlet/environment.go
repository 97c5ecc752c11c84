package outlet

// Environment returns the variables by which programs find the proxy at addr (host:port), in upper and lower case, as
// programs differ.
//
// NO_PROXY excludes loopback, which at the proxy would mean the host machine: listed ports of that are relayed. If the
// rules list every port of a loopback address, which cannot be relayed, all connections go through the proxy.
func Environment(addr string, rules Rules) []string {
	direct := "localhost,127.0.0.1,::1"
	if rules.listsAllOfLoopback() {
		direct = ""
	}
	return []string{
		"HTTP_PROXY=http://" + addr, "http_proxy=http://" + addr,
		"HTTPS_PROXY=http://" + addr, "https_proxy=http://" + addr,
		"ALL_PROXY=socks5h://" + addr, "all_proxy=socks5h://" + addr,
		"NO_PROXY=" + direct, "no_proxy=" + direct,
	}
}
