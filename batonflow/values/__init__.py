"""Values as data: what each class is written as, and what comes back of it."""
