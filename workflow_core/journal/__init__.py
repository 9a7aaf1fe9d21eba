"""Records of what runs did: segments, the recorder that orders them, and stores."""
