package ledger

// Secret is a text that stays out of logs, such as an API secret or the code of a voucher. The verbs of package fmt do not
// show it.
type Secret string

const hidden = "[secret]"

// Expose returns the text. Do not log it.
func (s Secret) Expose() string { return string(s) }

// String hides the text.
func (s Secret) String() string { return hidden }

// GoString hides the text.
func (s Secret) GoString() string { return hidden }

// Ptr returns a pointer to a value, for optional fields.
func Ptr[T any](value T) *T { return &value }
