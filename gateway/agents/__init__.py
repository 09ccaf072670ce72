"""Who answers: one file per kind of agent, imported only when it is configured."""
