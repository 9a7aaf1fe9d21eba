"""Tests of batonflow; the folders mirror the source tree."""
