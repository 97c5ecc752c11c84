package gitagency

// convertAll converts every element of a slice. Nil stays nil, because JSON tells nil from empty.
func convertAll[A, B any](all []A, convert func(A) B) []B {
	if all == nil {
		return nil
	}
	converted := make([]B, len(all))
	for i, one := range all {
		converted[i] = convert(one)
	}
	return converted
}
