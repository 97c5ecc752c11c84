package git

// Feature is an ability that only newer versions of git have.
type Feature struct {
	Name  string
	Since Version
}

// Features lists the features we use, oldest first. The callers have a fallback for each.
var Features = []Feature{
	{"merge-tree --merge-base", Version{Major: 2, Minor: 40}},
	{"replay", Version{Major: 2, Minor: 44}},
}

// Offers reports whether this version of git has a feature.
func (v Version) Offers(f Feature) bool { return v.AtLeast(f.Since) }
