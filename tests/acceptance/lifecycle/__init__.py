"""Operations of an installation: reload, restart, back up, hand over."""
