"""The Autobahn suite against Bolide: ``make conformance``."""
