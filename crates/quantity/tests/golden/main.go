// Command golden prints how Kubernetes itself reads and prints quantities, one input a line, for the tests of this
// crate. To write the table again, in a folder outside the repository:
//
//	go mod init golden && cp .../crates/quantity/tests/golden/main.go .
//	go get k8s.io/apimachinery@v0.36.3 && go run . > .../crates/quantity/tests/golden.tsv
//
// Columns: input (as a JSON string), "ok" or the kind of error, String(), Value(), MilliValue(), and the same two
// values computed exactly: rounded away from zero and clamped to the range of int64, where Kubernetes may wrap.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	fmt.Println("# input\tresult\tString\tValue\tMilliValue\texact Value\texact MilliValue")
	seen := map[string]bool{}
	for _, input := range inputs() {
		if seen[input] {
			continue
		}
		seen[input] = true
		fmt.Println(row(input))
	}
}

func row(input string) string {
	quoted, err := json.Marshal(input)
	if err != nil {
		panic(err)
	}
	literal := string(quoted)
	quantity, err := resource.ParseQuantity(input)
	switch {
	case errors.Is(err, resource.ErrFormatWrong):
		return literal + "\tformat"
	case errors.Is(err, resource.ErrNumeric):
		return literal + "\tnumeric"
	case errors.Is(err, resource.ErrSuffix):
		return literal + "\tsuffix"
	case err != nil:
		panic(err)
	}
	printed, value, milli := quantity.String(), quantity.Value(), quantity.MilliValue()
	dec := quantity.AsDec()
	return fmt.Sprintf("%s\tok\t%s\t%d\t%d\t%d\t%d", literal, printed, value, milli, exact(dec, 0), exact(dec, 3))
}

// exact is the amount times ten to the power of digits, rounded away from zero and clamped.
func exact(dec *inf.Dec, digits inf.Scale) int64 {
	limit := int64(1<<63 - 1)
	if dec.Sign() < 0 {
		limit = -1 << 63
	}
	if dec.Sign() != 0 && dec.Scale() < -100 {
		return limit
	}
	scaled := new(inf.Dec).Mul(dec, new(inf.Dec).SetUnscaledBig(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)))
	rounded := new(inf.Dec).Round(scaled, 0, inf.RoundUp).UnscaledBig()
	if rounded.IsInt64() {
		return rounded.Int64()
	}
	return limit
}

func inputs() []string {
	var all []string
	add := func(more ...string) { all = append(all, more...) }

	suffixes := []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e3", "E3", "e-3", "e+6", "e1", "e2", "E-9", "e18"}
	numbers := []string{"0", "1", "8", "10", "100", "999", "1000", "1024", "1.5", "0.1", "0.001", "123456789", "-1", "-1.5", "010", "+5"}
	for _, number := range numbers {
		for _, suffix := range suffixes {
			add(number + suffix)
		}
	}

	// What the field is known for.
	add("0.1m", "1.23Ki", "1.5e3", "1n", "010Mi", "5.", "1e3", ".5", ".5Gi", "1.500", "1.2340", "500.000m", "1000000", "3E", "1.5Gi", "0.5Gi", "0.5Ki", "100m", "250m", "2048Mi")

	// Limits of int64 and beyond, whole and in thousandths.
	add("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9223372036854775807m", "9223372036854775.807", "9223372036854775.808", "9223372036854775808m")
	add("9E", "10E", "9.223372036854775807E", "9.3E", "1000P", "1000E", "1000000E", "7Ei", "8Ei", "9Ei", "-8Ei", "-9Ei", "7.9999999Ei", "1e19", "1e20", "1e29", "-1e19", "1e100", "99999999999999999999", "123456789012345678901234567890")
	add("18446744073709551615", "18446744073709551616", "1844674407370955161600m", "999999999999999999", "1000000000000000000", "123456789012345678", "1234567890123456789")

	// Finer than nano: rounded away from zero when read.
	add("0.1n", "0.5n", "0.0000000001", "0.00000000051", "1.0000000001", "-0.1n", "-1.0000000001", "1e-10", "15e-10", "1e-100", "0.000000001Ki", "0.0000000000001Mi", "1.00000000000000000001Gi", "0.00000000000000000000000000000000001Ei", "0.33333333333333333333333Gi")
	add("0.000000000000000001", "0.0000000000000000001", "0.0", "0.00Ki", "00", "00.00", "-0", "+0", "-0Ki", "0e0", "0E", "0n", "0.000n", ".0", "0.")

	// Rounding away from zero, both ways of reading and both signs.
	add("1.1", "-1.1", "1.0001", "-1.0001", "0.0001", "-0.0001", "1234567890123456.789", "-1234567890123456.789", "1.0000000000000000001", "-1.0000000000000000001", "0.9Ki", "-0.9Ki", "1.1Mi", "-1.1Mi", "-0.5Gi", "-100m", "-1n", "-1u")

	// Notations that are kept, and notations that are computed.
	add("1e0", "1e1", "10e2", "12e6", "12E6", "1000e3", "1e03", "1e+3", "1e-03", "1.5e-3", "1.5e6", "120e-3", "0.1e3", "100e-1", "1.e3", "001.500", "0001Ki", "0008Ki", "9Ki", "7Ti", "77Ti", "777Ti", "1Pi", "16Pi", "1025Ki", "1026Mi", "1000Ki", "100000Ki", "12345678Ki", "123456789Ki", "1023.5Ki", "512.0Ki", "1.0Ki", "1.Ki", "1.25Mi", "0.0009765625Ki", "2.5Ki", "1000.5M", "1234.5678k", "1.000001M", "12345.6789u", "999999999999999.999", "1500000000m", "1000000000n", "1000u")

	// Exponents that Kubernetes cuts to 32 bits.
	add("1e4294967296", "1e4294967299", "5e-4294967293", "1e9223372036854775807", "1e9223372036854775808", "1e-9223372036854775808", "1e1000", "1e2147483647")

	// Not quantities.
	add("", " ", "1 ", " 1", "1 Gi", "a", "m", "Ki", "e3", "Gi1", "1.2.3", "1..2", "..", "--1", "++1", "+-1", "1-", "1+", "1-1", "1+1k", "1ki", "1K", "1KI", "1kI", "1KB", "1Kib", "1mi", "1gi", "1b", "1e", "1e+", "1e-", "1e3e", "1e3k", "1e3.5", "1e 3", "1E+", "1Ee3", "1EE", "1Eie", "1ee3", "1e--3", "1eE3", "1iK", "1Mik", "1MM", "1nn", "1Ei3", "1k3", "1m3", "0x10", "1_000", "1,000", "½", "1µ", "1\u00a0", "１", "1\x00", "NaN", "Inf", "inf", "-", "+", ".", "-.", "+.", ".Ki", "-Ki", "+Ki", ".e3", ".e-10", "-.e-10", "+e-10", ".0e-10", ".m", "-m", "1e99999999999999999999", "i", "1i", "1e3i", "true", "null", "1/2", "1%")
	return all
}
