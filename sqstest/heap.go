package sqstest

// heap is a binary heap whose elements know their place, so that any of them can be moved or taken out in
// logarithmic time. An element that is in no heap has the place -1.
type heap[T any] struct {
	items []T
	less  func(a, b T) bool
	place func(T) *int
}

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) top() T { return h.items[0] }

func (h *heap[T]) push(x T) {
	h.items = append(h.items, x)
	h.up(x, len(h.items)-1)
}

func (h *heap[T]) remove(x T) {
	i := *h.place(x)
	last := len(h.items) - 1
	y := h.items[last]
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	*h.place(x) = -1
	if i < last {
		h.set(y, i)
		h.fix(y)
	}
}

// fix restores the order after the key of x has changed.
func (h *heap[T]) fix(x T) {
	i := *h.place(x)
	if h.up(x, i) == i {
		h.down(x, i)
	}
}

func (h *heap[T]) set(x T, i int) {
	h.items[i] = x
	*h.place(x) = i
}

func (h *heap[T]) up(x T, i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(x, h.items[parent]) {
			break
		}
		h.set(h.items[parent], i)
		i = parent
	}
	h.set(x, i)
	return i
}

func (h *heap[T]) down(x T, i int) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], x) {
			break
		}
		h.set(h.items[child], i)
		i = child
	}
	h.set(x, i)
}
