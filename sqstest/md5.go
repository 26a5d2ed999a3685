package sqstest

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strings"
)

func bodyMD5(body string) string {
	sum := md5.Sum([]byte(body))
	return hex.EncodeToString(sum[:])
}

// attributesMD5 is the digest of message attributes by the recipe of M7, and "" for none (M8).
func attributesMD5(attributes map[string]attributeValue) string {
	if len(attributes) == 0 {
		return ""
	}
	h := md5.New()
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		v := attributes[name]
		writeSized(h, []byte(name))
		writeSized(h, []byte(v.DataType))
		if strings.HasPrefix(v.DataType, "Binary") {
			h.Write([]byte{2})
			writeSized(h, v.BinaryValue)
		} else {
			h.Write([]byte{1})
			writeSized(h, []byte(v.StringValue))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func writeSized(h hash.Hash, b []byte) {
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
	h.Write(b)
}
