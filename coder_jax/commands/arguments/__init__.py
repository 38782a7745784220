"""The arguments of verbs, where they are many or several verbs have them."""
