package sqsub

// An event is what the loop is told: a returned, a failed, a settled, a loss, a
// noShow, a pollResult or an inspection.
type event any

type (
	returned struct{ ds []*delivery } // handlers have returned; the deliveries are going to be deleted, or left alone
	settled  struct{ ds []*delivery } // deliveries have their outcomes; their returned may come later, or never
	loss     struct{ d *delivery }    // its visibility was lost

	failed struct { // its handler has returned, and it is to be handed back
		d     *delivery
		last  bool             // SQS will not deliver it again
		after chan<- aftermath // what has to be handed back with it
	}

	noShow struct{ p *parking } // an awaited message has not come

	inspection chan []Held // somebody asks what is in hand

	// An aftermath is what else a failure concerns.
	aftermath struct {
		followers  []*delivery // of its group, in order: hand them back too
		superseded bool        // a newer delivery of the same message is here: leave the message to it
	}
)

func (l *dispatcher) take(e event) {
	switch e := e.(type) {
	case returned:
		for _, d := range e.ds {
			l.takeReturn(d)
		}
	case failed:
		e.after <- l.fail(e.d, e.last)
		l.takeReturn(e.d)
	case settled:
		for _, d := range e.ds {
			l.takeSettlement(d)
		}
	case pollResult:
		l.takePoll(e)
	case loss:
		l.takeLoss(e.d)
	case noShow:
		l.takeNoShow(e.p)
	case inspection:
		e <- l.inventory()
	}
}

// tell tells the loop without waiting for it: a hook may hold it up, which must not
// keep a worker from the next handler, nor other requests from being sent.
func (s *Subscription) tell(e event) {
	select {
	case s.events <- e:
	default:
		s.goroutines.Go(func() {
			select {
			case s.events <- e:
			case <-s.looped: // it has ended, and needs to know no more
			}
		})
	}
}
