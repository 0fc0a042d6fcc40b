from hypothesis import settings

settings.register_profile("owlclaw", deadline=None)
settings.load_profile("owlclaw")
