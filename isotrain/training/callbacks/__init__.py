"""Lightning callbacks: exact resume, best checkpoint, non-finite guard, predictions."""
